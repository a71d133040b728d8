"""The workload `transactions` on Apache Kafka: nodes are killed under load, and the run is valid."""

from pathlib import Path

import pytest

from harness.contracts.verdict import Judgement, Validity
from harness.runs.experiment import Experiment, TopicConfig
from harness.runs.judge import judge_result
from harness.runs.real import run_real
from nemesis.fault import Fault
from tests.kafka_jars import kafka_or_skip
from workloads.transactions_config import TransactionsConfig

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

pytestmark = [pytest.mark.long, pytest.mark.wire, pytest.mark.timeout(900)]

VERSION = "4.0.2"
OF_READ_COMMITTED = ("G1a", "aborted-record-visible", "precommitted-read", "torn-transaction")


@pytest.mark.parametrize("client", ["confluent", "native"])
def test_transactions_survive_a_kill_of_a_broker(client: str, tmp_path: Path) -> None:
    kafka_or_skip(VERSION)
    experiment = Experiment(
        name="transactions",
        on="local",
        system="apache-kafka",
        version=VERSION,
        duration_ms=8000,
        topic=TopicConfig(count=2, partitions=2),
        workload=TransactionsConfig(client=client, abort_share=0.3, zombie_share=0.1),
        workload_name="transactions",
        schedule=(Fault(id="k", fault="kill", targets=("b1",), at_ms=2000, for_ms=2000),),
    )
    result = run_real(experiment, 3, directory=tmp_path)
    verdict, _ = judge_result(experiment, 3, result)
    assert verdict.validity is Validity.VALID, verdict.reasons
    counted = verdict.coverage
    assert counted["producer_transactions_committed"] > 20
    assert counted["producer_transactions_aborted"] > 5
    assert counted["positions_committed"] > 0
    assert counted["acked_during_faults"] > 0
    # Readers with read_uncommitted saw records of aborted transactions, which nothing forbids.
    visible = {one.id: one.judgement for one in verdict.anomalies}
    assert visible["G1a"] is Judgement.ALLOWED
    assert not {name for name in OF_READ_COMMITTED if visible.get(name) is Judgement.FORBIDDEN}
