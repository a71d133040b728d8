"""The excerpt in README.md is generated, and only that."""

from pathlib import Path

import pytest

from harness.documents import readme

LINES = {
    "kafka-4.0": ["INVALID", "  a reason " + "word " * 40, "", "lost at", "0.1 s", "", "outcome 1"],
    "kafka-4.1": ["VALID", "", "profile  kafka-4.1", "unexcused lost records  0", "outcome 2"],
}


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    page = tmp_path / "README.md"
    monkeypatch.setattr(readme, "PATH", page)
    monkeypatch.setattr(readme, "_printed", lambda profile: LINES[profile])
    return page


def test_what_the_program_prints_replaces_the_excerpt(page: Path) -> None:
    begin, end = "# title\n\nSeen (excerpt):\n\n", "    arm  runs\n    ──\n\nText.\n"
    page.write_text(f"{begin}    old\n      older\n\n    oldest\n\n{end}", encoding="utf-8")
    text = readme.document()
    assert text.startswith(f"{begin}    INVALID\n      a reason word ")
    assert text.endswith(f"    outcome 2\n\n{end}")
    assert "old" not in text
    assert max(len(line) for line in text.splitlines()) <= readme.WIDTH + 4
    page.write_text(text, encoding="utf-8")
    assert readme.document() == text


def test_a_readme_without_an_excerpt_is_refused(page: Path) -> None:
    page.write_text("# title\n", encoding="utf-8")
    with pytest.raises(ValueError, match="has no excerpt"):
        readme.document()
