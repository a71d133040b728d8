"""Every fault has its own sentence, and the report can show unknown faults."""

from types import SimpleNamespace

import pytest

from nemesis.faults import FAULT_NAMES, FAULTS
from results.report.fault_words import fault_sentence, fault_style, is_repair
from results.report.run import RunData

PARAMS = {
    "partition": {"shape": "halves", "groups": [["b1"], ["b2", "b3"]]},
    "loss": {"percent": 30},
    "delay": {"ms": 100, "jitter_ms": 20},
    "bandwidth": {"rate_kib_s": 64},
    "delay_messages": {"messages": "Fetch", "ms": 50},
    "slow_cpu": {"percent": 5},
    "clock_step": {"ms": -30000},
    "clock_drift": {"ppm": 200000},
    "clock_strobe": {"ms": 200, "period_ms": 50},
    "slow_disk": {"ms": 50},
    "truncate_file": {"bytes": 700},
    "alter_config": {"topic": "t", "key": "min.insync.replicas", "value": 7},
    "alter_feature": {"feature": "kraft.version", "level": 9},
    "reassign": {"partition": "t-0", "replicas": [4, 5]},
    "move_replica": {"partition": "t-0"},
    "log_dir_error": {"log_dir": 4},
    "wipe_log_dir": {"log_dir": 4},
    "elect_leader": {"partition": "t-0", "election": "unclean"},
}


def sentence(fault, nodes=("b1", "b2", "b3"), **params):
    return fault_sentence({"fault": fault, "resolved": list(nodes), "params": params})


@pytest.mark.parametrize("fault", FAULT_NAMES)
def test_every_fault_has_a_sentence_that_names_its_numbers_once(fault):
    output = sentence(fault, **PARAMS.get(fault, {}))
    assert not output.startswith(fault)
    assert "{" not in output
    for number in PARAMS.get(fault, {}).values():
        if isinstance(number, int):
            assert output.count(str(number)) == 1
    assert "no node" not in output
    if fault != "heal":
        assert "no node" in sentence(fault, (), **PARAMS.get(fault, {}))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (sentence("partition", **PARAMS["partition"]), "Split b1 | b2 b3 (shape: halves)"),
        (sentence("cut", ("b1", "b2"), direction="one-way"), "Cut the network b1 → b2"),
        (sentence("reject", ("b1", "b2")), "Refused the packets b1 ↔ b2 with resets"),
        (sentence("delay", ("b1",), ms=5), "Delayed what arrives at b1 by 5 ms"),
        (sentence("wipe"), "Wiped the disk of b1, b2 and b3"),
        (sentence("heal", (), faults=["f1", "f2"]), "Healed f1 and f2"),
        (sentence("heal", ()), "Healed everything"),
        (
            sentence("alter_config", ("b2",), **PARAMS["alter_config"]),
            "Changed the setting min.insync.replicas through b2 (topic: t, value: 7)",
        ),
        (
            sentence("elect_leader", ("b2",), **PARAMS["elect_leader"]),
            "Requested the election of a leader of t-0 through b2 (election: unclean)",
        ),
        (
            sentence("move_replica", ("b2",), partition="t-0"),
            "Moved t-0 on b2 to the other log directory",
        ),
    ],
)
def test_sentences_read_well(said, expected):
    assert said == expected


def test_an_unknown_fault_is_described_by_its_name():
    assert sentence("{flood}", ("b1",), depth="{who}") == "{flood} b1 (depth: {who})"
    assert sentence("loss", ("b1",)) == "loss b1"


def test_an_unknown_fault_has_the_default_style_and_repairs_nothing():
    assert fault_style("flood") == ""
    assert not is_repair("flood")


@pytest.mark.parametrize("fault", FAULT_NAMES)
def test_network_and_disk_faults_are_coloured(fault):
    expected = {"network": "network", "disk": "power"}
    assert fault_style(fault) == expected.get(FAULTS[fault].group, "")


@pytest.mark.parametrize("fault", [*FAULT_NAMES, "flood"])
def test_a_fault_that_was_not_healed_has_the_duration_of_the_fault_table(fault):
    """A momentary fault has no duration, an outage ends when the node is started, others end with the run."""
    row = {"fault": fault, "resolved": ["b1"], "healed_ns": None}
    run = SimpleNamespace(end_ns=100)
    end = RunData._fault_end(run, row, 10, [(5, "b1"), (40, "b2"), (60, "b1")])
    kind = FAULTS.get(fault)
    if kind is None:
        assert end == 100
    else:
        assert end == (10 if kind.is_momentary else 60 if kind.is_outage else 100)
