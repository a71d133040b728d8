"""The reference pages name everything, the site of documents has every page, and links lead somewhere."""

import re
from pathlib import Path

import pytest

from harness import exit_codes
from harness.cli.output_schema import OUTPUTS
from harness.documents import commands, selectors
from nemesis.targets import SELECTORS

ROOT = Path(__file__).parents[4]
PAGES = sorted((ROOT / "docs").rglob("*.md"))


def test_every_selector_has_an_entry() -> None:
    named = set(re.findall(r"`([a-z_]+)(?::t-0)?`", selectors.document()))
    assert set(SELECTORS) <= named


def test_every_command_and_exit_code_has_an_entry() -> None:
    text = commands.document()
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert set(OUTPUTS) <= set(headings)
    assert headings.count("run") == 1
    codes = [
        value
        for name, value in vars(exit_codes).items()
        if name.isupper() and isinstance(value, int)
    ]
    assert sorted(codes) == sorted(exit_codes.MEANINGS)
    for code in codes:
        assert f"| {code} |" in text


def test_a_value_that_an_option_need_not_have_is_in_brackets() -> None:
    text = commands.document()
    assert "| `--guided [SHARE]` |" in text
    assert "| `--seeds N` |" in text


def test_the_readme_is_short_and_its_pictures_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert len(pictures) >= 2
    assert all((ROOT / picture).is_file() for picture in pictures)


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_links_between_documents_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in link:
            assert (page.parent / link).exists(), link


def test_the_site_of_documents_lists_pages_that_exist() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r"^ +- .+: (\S+\.md)$", text.partition("\nnav:")[2], re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert all((ROOT / "docs" / one).is_file() for one in listed)
    hidden = {page.relative_to(ROOT / "docs").as_posix() for page in PAGES} - set(listed)
    assert {one.partition("/")[0] for one in hidden} <= {"decisions", "findings"}
