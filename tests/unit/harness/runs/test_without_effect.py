"""Faults that can have no effect are refused; what is drawn never is."""

from random import Random

import pytest

from harness.runs.without_effect import check_copies
from nemesis.administration import ACTIONS
from nemesis.fault import Fault
from nemesis.schedule import Rhythm, random_schedule
from nemesis.templates import TEMPLATES


def drawn(template: str) -> list[Fault]:
    return [
        fault
        for seed in range(40)
        for fault in random_schedule(
            Random(seed),
            families=(),
            duration_ms=12_000,
            partitions=["t-0", "t-1"],
            rhythm=Rhythm(gap_ms=500, hold_ms=900, step_ms=300),
            actions=ACTIONS,
            templates=(template,),
            brokers=["b1", "b2", "b3"],
            controllers=["c11", "c12", "c13"],
            observes_nodes=True,
            log_dirs=2,
        )
    ]


@pytest.mark.parametrize("template", TEMPLATES)
def test_no_template_draws_a_copy_that_is_refused(template: str) -> None:
    for fault in drawn(template):
        check_copies(fault)
