"""What random faults show of idempotent producers if a batch that is sent again is appended again."""

from harness.contracts.verdict import Judgement
from harness.runs.experiment import Experiment, NemesisConfig
from harness.runs.judge import judge_result
from harness.runs.simulated import simulate
from tests.mutations.coverage import shows
from workloads.append_config import AppendConfig

SEED = 1


def forbidden(*without: str) -> set[str]:
    """Returns the forbidden anomalies of a run whose producers send again what had no response."""
    experiment = Experiment(
        name="idempotent",
        duration_ms=2000,
        disabled_rules=without,
        workload=AppendConfig(
            appends_per_s=60.0,
            polls_per_s=20.0,
            request_timeout_ms=400,
            enable_idempotence=True,
            records_per_batch_max=3,
        ),
        nemesis=NemesisConfig(
            faults=("isolate", "cut", "loss", "reset_connections"),
            gap_ms=200,
            hold_ms=400,
            step_ms=200,
        ),
    )
    verdict, _ = judge_result(experiment, SEED, simulate(experiment, SEED))
    return {one.id for one in verdict.anomalies if one.judgement is Judgement.FORBIDDEN}


@shows("PID-1")
def test_clients_see_a_batch_twice_and_out_of_sequence_without_the_rule() -> None:
    assert forbidden() == set()
    assert {"duplicate", "out-of-sequence"} <= forbidden("PID-1")
