"""The generated documents are those that the code describes now."""

from pathlib import Path

import pytest

from harness.documents import __main__ as command
from harness.documents import defects, registry, rules, variants
from harness.documents.citations import naming_tests, switch_places
from harness.documents.rules import UnreadSwitchError, check_switches
from harness.documents.variants import UnexplainedVariantError
from system_under_test.defects import DEFECTS
from system_under_test.rule_catalogue import RULES

ROOT = Path(__file__).parents[4]


def test_no_generated_document_is_stale():
    """When this fails: `make docs`."""
    assert registry.stale_documents() == []


def test_check_names_a_stale_document_and_writes_nothing(tmp_path, monkeypatch, capsys):
    document = registry.Document(path="one.md", text=lambda: "new\n")
    monkeypatch.setattr(registry, "DOCUMENTS", (document,))
    monkeypatch.setattr(command, "stale_documents", lambda: registry.stale_documents(tmp_path))
    monkeypatch.setattr(command, "write_documents", lambda: registry.write_documents(tmp_path))
    (tmp_path / "one.md").write_text("old\n", encoding="utf-8")

    assert command.main(["--check"]) == 1
    assert capsys.readouterr().err == "one.md is stale; run `make docs`\n"
    assert (tmp_path / "one.md").read_text(encoding="utf-8") == "old\n"

    assert command.main([]) == 0
    assert capsys.readouterr().out == "one.md\n"
    assert (tmp_path / "one.md").read_text(encoding="utf-8") == "new\n"
    assert command.main(["--check"]) == 0


def test_a_missing_document_is_stale(tmp_path, monkeypatch):
    document = registry.Document(path="one.md", text=lambda: "text\n")
    monkeypatch.setattr(registry, "DOCUMENTS", (document,))
    assert registry.stale_documents(tmp_path) == ["one.md"]


def test_every_rule_and_every_defect_has_a_section():
    # The stored documents; the first test shows that they are current.
    text = (ROOT / "docs/rules.md").read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if line.startswith("### ")] == [
        f"### {rule}" for rule in RULES
    ]
    text = (ROOT / "docs/defects.md").read_text(encoding="utf-8")
    for defect in DEFECTS.values():
        assert f"### {defect.id} {defect.name}" in text


def test_every_rule_has_a_test_that_names_it():
    named = naming_tests(rules.RULE_ID)
    assert [rule for rule in RULES if not named.get(rule)] == []


def test_a_switchable_rule_that_no_code_reads_makes_the_generation_fail(monkeypatch):
    read = set(switch_places())
    check_switches(read)
    with pytest.raises(UnreadSwitchError, match="no code reads the switch: HW-1"):
        check_switches(read - {"HW-1"})
    with pytest.raises(UnreadSwitchError, match="not listed: HW-2"):
        check_switches(read | {"HW-2"})
    monkeypatch.setattr(rules, "switch_places", dict)
    with pytest.raises(UnreadSwitchError):
        rules.document()


def test_a_variant_without_an_explanation_makes_the_generation_fail(monkeypatch):
    explained = {name: text for name, text in variants._WHY.items() if name != "V3b"}
    monkeypatch.setattr(variants, "_WHY", explained)
    with pytest.raises(UnexplainedVariantError, match="V3b"):
        variants.document()


def test_a_defect_that_no_test_names_makes_the_generation_fail(monkeypatch):
    monkeypatch.setattr(defects, "naming_tests", lambda pattern: {})
    with pytest.raises(defects.UnshownDefectError, match="B-00"):
        defects.document()
