"""docs/faults.md lists what the fault table holds."""

from harness.documents.faults import document
from nemesis.faults import FAULTS


def test_every_fault_has_one_row_with_all_its_parameters():
    rows = [line for line in document().splitlines() if line.startswith("| `")]
    for name, fault in FAULTS.items():
        (row,) = [line for line in rows if line.startswith(f"| `{name}` |")]
        assert row.count("|") == 6
        assert fault.evidence in row
        for parameter in fault.parameters:
            assert f"`{parameter}`" in row
