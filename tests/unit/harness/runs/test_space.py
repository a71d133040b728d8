"""Configurations drawn per seed: what may be declared, what is drawn, and that no draw is impossible."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.contracts.space import Range
from harness.errors import UsageError
from harness.runs import experiment_file as experiments
from harness.runs.experiment import Experiment, TopicConfig
from harness.runs.experiment_file import dumps, loads, vary
from harness.runs.phases import assignments
from harness.runs.promises import promised_context
from harness.runs.resolved import resolve
from harness.runs.space import draw
from harness.systems.reference.adapter import SYSTEM
from system_under_test.config import PROFILES

FILE = """
[topic]
partitions = 2
[space]
default = true
"topic.count" = [7]
"cluster.segment_bytes" = { from = 100, to = 10000 }
"""


DRAWN_BEFORE = {
    "cluster.brokers": 4,
    "cluster.segment_bytes": 1024,
    "cluster.flush_messages": 20,
    "properties.replica.lag.time.max.ms": 1528,
    "properties.replica.fetch.response.max.bytes": 500,
    "topic.partitions": 1,
    "weather": "stormy",
    "workload.request_timeout_ms": 1020,
    "workload.fetches_per_poll_max": 4,
}


def space_of(text: str) -> Experiment:
    return loads(f"[space]\n{text}", origin="test")


def test_an_experiment_without_a_space_stays_as_it_is():
    experiment = Experiment()
    assert resolve(experiment, 5) == (experiment, {})


def test_the_default_space_leaves_out_what_the_file_sets():
    experiment = loads(FILE, origin="test")
    assert "topic.partitions" not in experiment.space
    assert experiment.space["topic.count"] == (7,)
    assert experiment.space["cluster.segment_bytes"] == Range(least=100, most=10000)
    assert "topic.replication_factor" in experiment.space
    assert loads(dumps(experiment), origin="again") == experiment


def test_the_command_line_draws_every_key_but_those_that_it_sets_itself():
    experiment = loads(FILE, origin="test", space="default", weather="calm")
    assert "topic.partitions" in experiment.space
    assert experiment.space["topic.count"] == (7,)
    assert "weather" not in experiment.space
    assert not loads(FILE, origin="test", space="none").space
    with pytest.raises(UsageError, match="no space is called 'dfault'"):
        loads(FILE, origin="test", space="dfault")


def test_the_default_space_draws_index_sizes_and_the_features_of_the_profile():
    experiment = space_of("default = true")
    assert experiment.space["profile"] == (
        *("kafka-4.1",) * 4,
        "kafka-4.1-epoch-requests",
    )
    assert experiment.space["properties.log.index.interval.bytes"] == (4096, 4096, 4096, 100)
    assert 36 in experiment.space["properties.log.index.size.max.bytes"]
    resolved = [resolve(experiment, seed).experiment for seed in range(40)]
    assert {one.profile for one in resolved} == set(experiment.space["profile"])
    assert all(promised_context(one).elr_on for one in resolved)


def test_no_feature_is_drawn_that_permits_a_loss_but_the_verdict_follows_one_that_is_named():
    for profile in PROFILES:
        for variant in SYSTEM.profile_variants(profile):
            assert SYSTEM.profiles[variant].elr_on >= SYSTEM.profiles[profile].elr_on
    named = space_of('profile = ["kafka-4.1", "kafka-4.1-elr-off"]')
    promised = {}
    for seed in range(20):
        one = resolve(named, seed).experiment
        promised[one.profile] = promised_context(one).elr_on
    assert promised == {"kafka-4.1": True, "kafka-4.1-elr-off": False}


@pytest.mark.parametrize("profile", ["kafka-3.4", "kafka-4.4", "kafka-4.1-elr-off"])
def test_a_profile_without_variants_is_not_drawn(profile: str):
    experiment = loads(f'profile = "{profile}"\n[space]\ndefault = "every"', origin="test")
    assert "profile" not in experiment.space


def test_a_profile_that_is_set_is_drawn_only_on_request():
    text = 'profile = "kafka-4.0"\n[space]\ndefault = true'
    assert "profile" not in loads(text, origin="test").space
    assert "profile" not in loads(text, origin="test", space="default", profile="kafka-4.0").space
    every = loads(text, origin="test", space="default").space["profile"]
    assert set(every) == {"kafka-4.0", "kafka-4.0-elr-on", "kafka-4.0-late-commits"}


def test_new_keys_change_no_draw_of_the_others():
    """What seed 7 drew before the space had index sizes and profiles."""
    drawn = resolve(space_of("default = true"), 7).drawn
    assert {key: drawn[key] for key in DRAWN_BEFORE} == DRAWN_BEFORE


def test_a_key_that_is_varied_is_not_drawn():
    varied = vary(space_of('"topic.partitions" = [1, 2]\nprofile = ["kafka-4.0"]'), "elr", "on")
    assert set(varied.space) == {"topic.partitions"}
    assert not vary(varied, "topic.partitions", "3").space


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"topic.partitons" = [1]', "did you mean 'partitions'"),
        ('"topic.partitions" = []', "must be a list of values, or a range"),
        ('"topic.replication_factor" = [2, 2.5]', "has the value 2.5, which is no whole number"),
        ('"cluster.brokers" = [true, 3]', "has the value True, which is no whole number"),
        ('"cluster.brokers" = { from = 1.5, to = 3 }', "the value 1.5, which is no whole number"),
        ('"topic.partitions" = { from = 3, to = 1 }', "must be a range .* and from <= to"),
        ('"topic.partitions" = { from = -1, to = 1 }', "both are numbers of at least 0"),
        ('"topic.partitions" = { from = 1 }', "from and to are both needed"),
        ("topic.partitions = [1, 2]", 'must be quoted; write "topic.partitions" = '),
        (
            "properties.replica.lag.time.max.ms = { from = 1, to = 2 }",
            'write "properties.replica.lag.time.max.ms" = ',
        ),
        ('"topic.partitions" = [1, 0]', "topic.partitions is 0"),
        ('"workload.acks" = [["2"]]', "no acks is called '2'"),
        ('system = ["reference"]', "no key of a space is called 'system'"),
        ('"topic.replication_factor" = [4]', "at least 2 and at most 3"),
        ('"topic.min_insync_replicas" = [4, 5]', "at most 3"),
        ('"properties.replica.lag.time" = [4]', "did you mean replica.lag.time.max.ms"),
        ("default = 3", 'use true, false or "every"'),
        (
            '"topic.partitions" = [1, 2]\n[[schedule]]\nfault = "kill"\ntargets = ["leader:t-1"]',
            "t-1",
        ),
    ],
)
def test_a_space_that_cannot_be_drawn_is_refused_before_the_first_run(text, expected):
    with pytest.raises(UsageError, match=expected):
        space_of(text)


@pytest.mark.parametrize("timings", ["fast", "kafka"])
def test_no_seed_draws_an_impossible_configuration(timings):
    experiment = experiments.changed(Experiment(timings=timings), space="default")
    seen: dict[str, set[str]] = {}
    for seed in range(60):
        resolved, drawn = resolve(experiment, seed)
        assert not resolved.space
        topic = resolved.topic
        assert topic.min_insync_replicas <= topic.replication_factor <= resolved.cluster.brokers
        for key, value in drawn.items():
            seen.setdefault(key, set()).add(json.dumps(value))
    single = [key for key, values in seen.items() if len(values) < 2]
    assert not single


def test_a_key_more_changes_no_other_draw():
    few = space_of('"topic.partitions" = { from = 1, to = 900 }')
    more = space_of('"topic.partitions" = { from = 1, to = 900 }\n"topic.count" = [1, 2]')
    for seed in range(5):
        assert (
            resolve(few, seed).drawn["topic.partitions"]
            == resolve(more, seed).drawn["topic.partitions"]
        )


def test_a_fixed_min_isr_bounds_the_replication_factor():
    experiment = space_of('"topic.replication_factor" = [1, 2, 3]')
    drawn = {resolve(experiment, seed).drawn["topic.replication_factor"] for seed in range(12)}
    assert drawn == {2, 3}


def test_a_value_above_its_bound_is_never_drawn():
    experiment = space_of('"topic.replication_factor" = [3, 7]\n"cluster.brokers" = [3, 5]')
    drawn = {resolve(experiment, seed).drawn["topic.replication_factor"] for seed in range(12)}
    assert drawn == {3}


def test_a_range_has_both_ends_and_every_factor_alike():
    space = {"duration_ms": Range(least=100, most=10000)}

    class Position:
        def __init__(self, position):
            self.random = lambda: position

    def drawn(position):
        return draw(space, {}, lambda key: Position(position))["duration_ms"]

    assert (drawn(0.0), drawn(0.5), drawn(1.0)) == (100, 1000, 10000)


def test_a_shuffled_assignment_follows_from_the_seed_and_names_each_broker_once():
    topic = TopicConfig(partitions=6, replication_factor=3, assignment="shuffled")
    found = assignments(topic, 0, (1, 2, 3, 4), seed=5)
    assert found == assignments(topic, 0, (1, 2, 3, 4), seed=5)
    assert found != assignments(topic, 0, (1, 2, 3, 4), seed=6)
    assert found != assignments(topic, 1, (1, 2, 3, 4), seed=5)
    assert all(len(set(replicas)) == 3 for replicas in found)
    plain = replace(topic, assignment="round-robin")
    assert assignments(plain, 1, (1, 2, 3), seed=5)[:2] == ((2, 3, 1), (3, 1, 2))


def test_the_built_in_experiment_can_draw_the_default_space():
    path = Path(experiments.__file__).parents[1] / "experiments" / "elr-compare.toml"
    experiment = experiments.load(path, space="default")
    assert len(experiment.space) > 25
