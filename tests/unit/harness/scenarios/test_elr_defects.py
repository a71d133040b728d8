"""The variants of V11: each switches off exactly the rules of the defect that it names."""

import pytest

from harness.scenarios.elr_defects import DEFECTS, ELR_DEFECTS
from harness.scenarios.last_replica_standing import VARIANTS
from system_under_test.defects import DEFECTS as KNOWN


@pytest.mark.parametrize("variant", sorted(DEFECTS))
def test_a_variant_switches_off_the_rules_of_its_defect(variant: str) -> None:
    scenario = ELR_DEFECTS[variant]
    assert scenario.disabled_rules == KNOWN[DEFECTS[variant]].rules
    assert scenario.title.startswith(DEFECTS[variant])
    assert not scenario.is_watched


def test_only_the_lying_disk_has_no_defect() -> None:
    assert set(ELR_DEFECTS) - set(DEFECTS) == {"V11l"}
    assert ELR_DEFECTS["V11l"].disabled_rules == ()


def test_all_other_variants_have_every_rule_and_are_watched() -> None:
    others = [one for name, one in VARIANTS.items() if name not in ELR_DEFECTS]
    assert all(one.is_watched and not one.disabled_rules for one in others)
