"""What a run is judged by: a fault that could not be injected counts as one that never took effect."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from checkers.kernels.compose import required_faults
from harness.contracts.run_context import (
    NOT_RECORDED,
    RunContext,
    context_from_facts,
    context_from_json,
    context_to_row,
    name_and_id,
)
from harness.history.schema import FAULTS, RUN_FACTS
from harness.history.writer import HistoryWriter
from harness.runs.experiment import ClusterConfig, Experiment, NemesisConfig, TopicConfig
from harness.runs.promises import CLEANUP_INTERVAL, promised_context, record_end, record_promises
from nemesis.driver import Nemesis, cut_short
from nemesis.fault import Fault
from nemesis.mechanism import Effect
from workloads.group_workload import ConsumerGroupConfig
from workloads.transactions_config import TransactionsConfig


class OneInjection:
    """An injection on given nodes with given evidence."""

    def __init__(self, nodes: tuple[str, ...], evidence: Mapping[str, Any]) -> None:
        self.nodes = nodes
        self.evidence = dict(evidence)

    async def heal(self) -> None: ...

    async def effect(self) -> Effect:
        return Effect(took_effect=False, evidence=self.evidence)


class OneFault:
    """A world in which one fault has a given effect."""

    def __init__(self, nodes: tuple[str, ...], evidence: Mapping[str, Any]) -> None:
        self.injection = OneInjection(nodes, evidence)

    def now_ns(self) -> int:
        return 5

    async def inject(self, *_: Any) -> OneInjection:
        return self.injection


@pytest.mark.parametrize(
    ("resolved", "evidence", "enabled"),
    [
        (["b1"], {}, ("io_error",)),
        ([], {"hit": "nobody"}, ()),
        ([], {"hit": "nobody", "error": "strace said no"}, ("io_error",)),
    ],
)
def test_a_fault_must_take_effect_if_it_had_targets_or_could_not_be_injected(
    resolved: list[str], evidence: dict[str, str], enabled: tuple[str, ...]
) -> None:
    rows: list[tuple[Any, ...]] = []
    world = OneFault(tuple(resolved), evidence)
    nemesis = Nemesis(world, world, rows.append, Random(1))  # type: ignore[arg-type]
    nemesis._aim = lambda fault: (fault, tuple(resolved))  # type: ignore[method-assign]
    fault = Fault(id="f1", fault="io_error", targets=("b1",), params={"op": "all"})
    asyncio.run(nemesis.inject(fault))
    (row,) = rows
    table = pa.Table.from_pylist([dict(zip(FAULTS.names, row, strict=True))], schema=FAULTS)
    assert required_faults(table, RunContext()) == enabled
    written = RunContext(enabled_faults=("io_error",))
    assert required_faults(table, written) == ("io_error",), "the user wrote it"
    early = replace(written, final_phase_complete=False)
    assert required_faults(table, early) == enabled, "the run ended before its end"
    assert table.column("broken_disk").to_pylist() == [True]
    assert json.loads(row[9]) == evidence


@pytest.mark.parametrize(
    ("ended", "nodes"),
    [
        ({"b1": "stopped", "b2": "stop-timeout"}, ["b2"]),
        ({"b1": {"in_time": True}, "b2": {"in_time": False}, "b3": {}}, ["b2", "b3"]),
        ({}, []),
    ],
)
def test_a_stop_that_did_not_finish_in_time_counts_as_unclean(
    ended: dict[str, Any], nodes: list[str]
) -> None:
    assert cut_short({"ended": ended}) == nodes
    assert cut_short({}) == []


def test_the_facts_of_a_run_are_its_context_column_by_column() -> None:
    names = {item.name for item in fields(RunContext)}
    assert names == {*RUN_FACTS.names, *NOT_RECORDED}
    context = RunContext(
        profile="kafka-4.0",
        elr_on=False,
        min_isr=1,
        replication_factor=5,
        unclean_election_enabled=True,
        checkers=("linearizability",),
        enabled_faults=("cut", "kill"),
        final_phase_complete=False,
        acked_during_faults_min=7,
        incomplete_reason="why",
        clock_error_ns=3,
        log_start_offset=9,
    )
    for each in (context, RunContext()):
        row = dict(zip(RUN_FACTS.names, context_to_row(each), strict=True))
        assert context_from_facts(pa.Table.from_pylist([row], schema=RUN_FACTS)) == each
        assert context_from_json(json.loads(json.dumps(asdict(each)))) == each
    assert context_from_facts(RUN_FACTS.empty_table()) is None


def test_without_any_fault_that_was_drawn_what_is_enabled_must_take_effect() -> None:
    drawing = Experiment(nemesis=NemesisConfig(faults=("cut", "power")))
    assert promised_context(drawing, ()).enabled_faults == ("cut", "power")
    assert promised_context(drawing).enabled_faults is None, "it is not known what is drawn"
    drawn = Fault(id="f1", fault="cut", targets=("b1", "b2"), optional=True)
    assert promised_context(drawing, (drawn,)).enabled_faults is None
    assert promised_context(Experiment(), ()).enabled_faults is None
    written = Experiment(schedule=(replace(drawn, optional=False),))
    assert promised_context(written).enabled_faults == ("cut f1",)
    second = replace(drawn, id="my own", optional=False)
    both = promised_context(Experiment(), (second, replace(drawn, optional=False)))
    assert both.enabled_faults == ("cut f1", "cut my own"), "each of them, not one of them"
    assert [name_and_id(one) for one in both.enabled_faults] == [("cut", "f1"), ("cut", "my own")]


def test_a_run_records_its_promises_first_and_its_end_last() -> None:
    experiment = Experiment(
        profile="kafka-4.0",
        topic=TopicConfig(min_insync_replicas=3, replication_factor=2),
        cluster=ClusterConfig(unclean_leader_election=True),
        on="local",
        workload_name="consumer-group",
        workload=ConsumerGroupConfig(),
    )
    schedule = (
        Fault(id="f1", fault="kill", targets=("b1",)),
        Fault(id="f2", fault="pause", targets=("b1",), optional=True),
        Fault(id="f3", fault="heal"),
    )
    killed, ended = HistoryWriter(None), HistoryWriter(None)
    for history in (killed, ended):
        record_promises(history, experiment, schedule)
    record_end(
        ended,
        experiment,
        schedule,
        final_phase_complete=True,
        incomplete_reason="",
        healed_ns=40,
        ended_ns=50,
    )
    begun = context_from_facts(killed.close()["run_facts"])
    assert begun == RunContext(
        profile="kafka-4.0",
        elr_on=False,
        min_isr=2,
        replication_factor=2,
        unclean_election_enabled=True,
        checkers=(
            "linearizability",
            "lost-acked",
            "replicas",
            "measures",
            "progress",
            "consumer-group",
        ),
        enabled_faults=("kill f1",),
        final_phase_complete=False,
        incomplete_reason="the harness died before the run was over",
        stuck_after_ms=30_000,
    )
    facts = ended.close()["run_facts"]
    assert facts.num_rows == 1
    finished = context_from_facts(facts)
    assert finished is not None
    assert (finished.final_phase_complete, finished.incomplete_reason) == (True, "")
    assert (finished.healed_ns, finished.ended_ns) == (40, 50)


def test_a_partition_has_ten_election_timeouts_to_make_progress() -> None:
    assert promised_context(Experiment()).stuck_after_ms == 6000
    slower = Experiment(properties={"broker.session.timeout.ms": "700"}, time_scale=2.0)
    assert promised_context(slower).stuck_after_ms == 14_000
    assert promised_context(Experiment(timings="kafka")).stuck_after_ms == 90_000
    kafka = Experiment(system="apache-kafka", on="local")
    assert promised_context(kafka).stuck_after_ms == 4 * 10 * 3000, "Apache Kafka is slower"


@pytest.mark.parametrize(
    ("settings", "properties", "more_ms"),
    [
        ({}, {}, 0),
        ({"transaction_timeout_ms": 60_000}, {}, 0),
        ({"short_lived_share": 0.1, "transaction_timeout_ms": 60_000}, {}, 70_000),
        ({"short_lived_share": 0.1}, {CLEANUP_INTERVAL: "500"}, 10_500),
    ],
)
def test_a_transaction_that_is_left_open_is_not_stuck_before_its_time_is_over(
    settings: dict[str, Any], properties: dict[str, str], more_ms: int
) -> None:
    experiment = Experiment(
        workload_name="transactions",
        workload=TransactionsConfig(**settings),
        properties=properties,
    )
    assert promised_context(experiment).stuck_after_ms == 6000 + more_ms
