"""docs/faults.md lists what the fault table holds."""

import tomllib
from pathlib import Path

from harness.documents.faults import document
from nemesis.faults import FAULTS
from nemesis.templates import TEMPLATES

SEARCHES = Path("harness/experiments")


def test_the_files_that_together_name_all_templates_do():
    assert "`search-transactions.toml` together\nname all templates" in document()
    named = [
        set(tomllib.loads((SEARCHES / f"{name}.toml").read_text())["nemesis"]["templates"])
        for name in ("search", "search-transactions")
    ]
    assert set.union(*named) == TEMPLATES.keys()


def test_every_fault_has_one_row_with_all_its_parameters():
    rows = [line for line in document().splitlines() if line.startswith("| `")]
    for name, fault in FAULTS.items():
        (row,) = [line for line in rows if line.startswith(f"| `{name}` |")]
        assert row.count("|") == 6
        assert fault.evidence in row
        for parameter in fault.parameters:
            assert f"`{parameter}`" in row
