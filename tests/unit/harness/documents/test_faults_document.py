"""docs/faults.md is what the fault table says."""

from harness.documents.faults import PATH, document
from nemesis.faults import FAULTS


def test_the_document_of_the_faults_is_up_to_date():
    assert PATH.read_text(encoding="utf-8") == document(), (
        "docs/faults.md is stale: run python -m harness.documents.faults"
    )


def test_every_fault_has_one_row_with_all_its_parameters():
    rows = [line for line in document().splitlines() if line.startswith("| `")]
    for name, fault in FAULTS.items():
        (row,) = [line for line in rows if line.startswith(f"| `{name}` |")]
        assert row.count("|") == 6
        assert fault.evidence in row
        for parameter in fault.parameters:
            assert f"`{parameter}`" in row
