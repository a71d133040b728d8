"""What the tests of defects share."""

from harness.defects.check import Checked, check_defect


def expect_defect(identifier: str) -> Checked:
    """Runs the schedule of a defect; what it shows must be what its description promises."""
    checked = check_defect(identifier)
    assert not checked.problems, "; ".join(checked.problems)
    return checked
