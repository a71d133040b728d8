"""Templates and faults that can have no effect with an experiment are refused; what is drawn never is."""

from random import Random

import pytest

from harness.errors import UsageError
from harness.runs import experiment_file as experiments
from harness.runs.without_effect import OF_TRANSACTIONS, WITHOUT_TRANSACTIONS, check_copies
from nemesis.administration import ACTIONS
from nemesis.fault import Fault
from nemesis.schedule import Rhythm, random_schedule
from nemesis.templates import TEMPLATES
from workloads.registry import WORKLOADS

MARKER = "WriteTxnMarkers"


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


def text(template: str, workload: str) -> str:
    return f'[workload]\nname = "{workload}"\n[nemesis]\ntemplates = ["election", "{template}"]'


@pytest.mark.parametrize("workload", WITHOUT_TRANSACTIONS)
@pytest.mark.parametrize("template", OF_TRANSACTIONS)
def test_a_template_about_transactions_needs_a_workload_with_some(
    template: str, workload: str
) -> None:
    sentence = f"x: the template {template!r} is about transactions, and the workload {workload!r} has none; leave"
    with pytest.raises(UsageError, match=sentence):
        experiments.loads(text(template, workload), origin="x")
    assert experiments.loads(text(template, "transactions"), origin="x").nemesis.templates


def test_a_space_that_draws_such_a_template_is_refused_before_the_first_run() -> None:
    space = '[space]\n"nemesis.templates" = [["election"], ["late-markers"]]'
    with pytest.raises(UsageError, match=r"the space draws .* is about transactions"):
        experiments.loads(space, origin="x")


def test_the_templates_about_transactions_are_those_that_wait_for_markers() -> None:
    waiting = {
        name for name in TEMPLATES if any(MARKER in str(fault.to_json()) for fault in drawn(name))
    }
    assert waiting == set(OF_TRANSACTIONS)


def test_every_other_built_in_workload_has_transactions() -> None:
    assert set(WORKLOADS.built_in) - set(WITHOUT_TRANSACTIONS) == {"transactions"}


@pytest.mark.parametrize("template", TEMPLATES)
def test_no_template_draws_a_copy_that_is_refused(template: str) -> None:
    for fault in drawn(template):
        check_copies(fault)
