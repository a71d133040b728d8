"""The parameters of faults, and the error message for invalid ones."""

from dataclasses import replace

import pytest

from harness.errors import UsageError
from harness.simulation import power_cut
from nemesis.agent.disks import synthesis
from nemesis.fault import Fault, fault_from_json
from nemesis.faults import FAULT_NAMES, FAULTS, Targets
from nemesis.parameters import PLANES, POWER_MODES, SHAPES

EXAMPLES = {
    "loss": {"percent": 30},
    "delay": {"ms": 100, "jitter_ms": 20},
    "bandwidth": {"rate_kib_s": 64},
    "slow_cpu": {"percent": 5},
    "clock_step": {"ms": -30000},
    "clock_drift": {"ppm": 200000},
    "clock_strobe": {"ms": 200, "period_ms": 50},
    "slow_disk": {"ms": 50},
    "truncate_file": {"bytes": 700},
    "alter_config": {"topic": "t", "key": "min.insync.replicas", "value": 1},
    "alter_feature": {"feature": "eligible.leader.replicas.version", "level": 1},
    "reassign": {"partition": "t-0", "replicas": [2, 3, 1]},
    "move_replica": {"partition": "t-0"},
    "elect_leader": {"partition": "t-0", "election": "unclean"},
    **{
        name: {"messages": "Fetch from follower:t-0 to leader", "count": 2}
        for name, row in FAULTS.items()
        if row.targets is Targets.MESSAGES
    },
    "delay_messages": {"messages": "FetchResponse", "ms": 50},
}
"""Faults that are nothing without a parameter, and good ones for them."""


WITHOUT_TARGETS = {
    name for name, row in FAULTS.items() if row.targets in (Targets.CLUSTER, Targets.MESSAGES)
}


def make(fault, targets=("b1", "b2"), **params):
    targets = () if fault in WITHOUT_TARGETS else targets
    return Fault(id="f1", fault=fault, targets=targets, params=params)


@pytest.mark.parametrize("fault", FAULT_NAMES)
def test_every_fault_survives_a_round_trip_through_json(fault):
    written = make(fault, **EXAMPLES.get(fault, {}))
    assert fault_from_json(written.to_json(), default_id="x") == written


@pytest.mark.parametrize("fault", sorted(EXAMPLES))
def test_a_missing_fault_parameter_is_named(fault):
    needed = [name for name, parameter in FAULTS[fault].parameters.items() if parameter.is_needed]
    assert needed
    for name in needed:
        rest = {key: value for key, value in EXAMPLES[fault].items() if key != name}
        rest.pop("jitter_ms", None)
        legal = FAULTS[fault].parameters[name].legal
        with pytest.raises(UsageError, match=f"needs the parameter {name}: {legal}"):
            make(fault, **rest)


@pytest.mark.parametrize(
    ("fault", "params", "sentence"),
    [
        ("loss", {"percent": 0}, "percent must be a whole number from 1 to 100, not 0"),
        ("loss", {"percent": 101}, "percent must be a whole number from 1 to 100, not 101"),
        ("loss", {"percent": True}, "percent must be a whole number"),
        ("loss", {"percent": 12.5}, "percent must be a whole number"),
        ("slow_cpu", {"percent": 100}, "percent must be a whole number from 1 to 99, not 100"),
        ("bandwidth", {"rate_kib_s": 0}, "rate_kib_s must be a whole number from 1"),
        ("delay", {"ms": 0}, "ms must be a whole number from 1 to 600000, not 0"),
        ("delay", {"ms": 10, "jitter_ms": 11}, "jitter_ms must not be more than ms"),
        ("clock_step", {"ms": 0}, "to -1 or from 1 to 315360000000, not 0$"),
        ("clock_step", {"ms": 10**12}, "ms must be a whole number from -315360000000"),
        ("clock_drift", {"ppm": -1_000_000}, "ppm must be a whole number from -999999"),
        ("clock_strobe", {"ms": 5, "period_ms": 0}, "period_ms must be a whole number from 1"),
        ("io_error", {"every": 0}, "every must be a whole number from 1"),
        ("io_error", {"every": 65_536}, "every must be a whole number from 1 to 65535"),
        ("io_error", {"op": "write"}, "no disk operation is called 'write' .known: fsync, all."),
        ("disk_full", {"free_bytes": -1}, "free_bytes must be a whole number, 0 or more, not -1"),
        ("partition", {"shape": "half"}, "did you mean 'halves'?"),
        ("partition", {"shape": "groups"}, "of shape 'groups' needs the parameter groups"),
        ("partition", {"groups": [["b1"], ["b2"]]}, "no other shape takes it"),
        ("partition", {"shape": "groups", "groups": [["b1"]]}, "a list of two or more lists"),
        ("partition", {"shape": "groups", "groups": [["b1"], []]}, "a list of two or more lists"),
        ("partition", {"planes": ["contoller"]}, "did you mean 'controller'?"),
        ("cut", {"at": "reciever"}, "did you mean 'receiver'?"),
        ("cut", {"direction": "oneway"}, "did you mean 'one-way'?"),
        ("power", {"mode": "lose_al"}, "did you mean 'lose_all'?"),
        ("reject", {"direction": "both"}, "no parameter of fault 'reject' is called 'direction'"),
        ("truncate_file", {"bytes": 0}, "bytes must be a whole number from 1 to 1073741824, not 0"),
        ("alter_config", {"key": ""}, "key must be text that is not empty, not ''"),
        ("alter_config", {"key": "k", "value": 1.5}, "value must be text, a whole number, true"),
        ("alter_config", {"key": "k", "broker": 0}, "broker must be a whole number from 1 to 10"),
        ("alter_config", {"key": "k", "topic": "t", "broker": 1}, "of a broker, not of both"),
        ("alter_feature", {"feature": "f", "level": -1}, "level must be a whole number from 0"),
        ("reassign", {"partition": "t-0", "replicas": 1}, "a list of different broker ids"),
        ("reassign", {"partition": "t-0", "replicas": [1, 1]}, "a list of different broker ids"),
        ("elect_leader", {"partition": "t-0", "election": "dirty"}, "no election is called"),
        ("wipe", {"ms": 3}, "no parameter of fault 'wipe' is called 'ms'"),
    ],
)
def test_an_impossible_parameter_is_named_with_the_possible_values(fault, params, sentence):
    with pytest.raises(UsageError, match=sentence):
        make(fault, **params)


@pytest.mark.parametrize("fault", ["cut", "reject"])
def test_a_fault_between_nodes_needs_two_nodes(fault):
    with pytest.raises(UsageError, match=f"a {fault} needs at least two targets"):
        make(fault, targets=("b1",))


@pytest.mark.parametrize(
    "fault", sorted(set(FAULT_NAMES) - WITHOUT_TARGETS - {"heal", "cut", "reject"})
)
def test_every_fault_of_nodes_needs_a_target(fault):
    with pytest.raises(UsageError, match="needs at least one target"):
        make(fault, targets=(), **EXAMPLES.get(fault, {}))


@pytest.mark.parametrize("fault", sorted(WITHOUT_TARGETS))
def test_a_fault_of_the_cluster_takes_no_targets(fault):
    with pytest.raises(UsageError, match="takes no targets"):
        Fault(id="f1", fault=fault, targets=("b1",), params=EXAMPLES[fault])


def test_every_allowed_word_is_accepted():
    for plane in PLANES:
        make("isolate", planes=[plane])
    for mode in POWER_MODES:
        make("power", mode=mode)
    for shape in SHAPES:
        make(
            "partition", shape=shape, **({"groups": [["b1"], ["b2"]]} if shape == "groups" else {})
        )


def test_a_parameter_that_is_not_given_has_the_default_of_the_table():
    assert make("cut").value("at") == "receiver"
    assert make("cut", at="sender").value("at") == "sender"
    assert make("stop").value("grace_ms") == 20_000
    assert make("power").value("mode") == "lose_all"
    assert make("power").value("keep_records") is None
    assert make("reject").value("direction") is None


@pytest.mark.parametrize("fault", FAULT_NAMES)
def test_every_default_is_legal_and_parameters_without_one_are_explained(fault):
    for name, parameter in FAULTS[fault].parameters.items():
        if parameter.default is not None:
            make(fault, **{**EXAMPLES.get(fault, {}), name: parameter.default})
        assert parameter.is_needed or parameter.default is not None or parameter.absent


@pytest.mark.parametrize("groups", [(), (("b1",), ("b2",))])
def test_a_partition_of_any_shape_has_groups_once_they_are_drawn(groups):
    fault = make("partition", shape="halves")
    params = {**fault.params, "groups": groups}
    assert replace(fault, params=params, is_drawn=True).value("groups") == groups
    with pytest.raises(UsageError, match="groups"):
        replace(fault, params=params)


def test_the_power_modes_are_those_of_simulation_and_agent():
    assert POWER_MODES == power_cut.MODES == synthesis.MODES
