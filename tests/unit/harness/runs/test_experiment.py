import tomllib
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from harness.campaigns.nightly_plan import DEFAULT_PLAN
from harness.errors import UsageError
from harness.runs import experiment_file as experiments
from harness.runs.experiment import Experiment, TopicConfig
from harness.runs.experiment_file import dumps, json_schema, loads, vary
from nemesis.fault import Fault

ROOT = Path(__file__).parents[4]


def test_an_experiment_survives_a_toml_round_trip():
    original = Experiment(
        name="trip",
        profile="kafka-3.9",
        weather="stormy",
        disabled_rules=("HW-1",),
        schedule=(
            Fault(
                id="a",
                fault="cut",
                targets=("b1", "b2"),
                at_ms=5,
                params={"planes": ("controller",)},
            ),
            Fault(
                id="b",
                fault="power",
                targets=("leader:t-0",),
                at_ms=9,
                for_ms=70,
                params={"mode": "zero_tail"},
            ),
        ),
    )
    again = loads(dumps(original), origin="test")
    assert experiments.to_data(again) == experiments.to_data(original)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('profil = "kafka-4.0"', "did you mean 'profile'"),
        ('profile = "kafka-40"', "did you mean 'kafka-4.0'"),
        ("[workload]\nprocesess = 3", "did you mean 'processes'"),
        ('[workload]\nacks = ["two"]', "no acks is called 'two'"),
        ('[nemesis]\nfaults = ["powr"]', "did you mean 'power'"),
        ("duration_ms = -4", "must not be negative"),
        ('duration_ms = "long"', "expected int, got str"),
        ("[topic]\nreplication_factor = 9", "there are 3 brokers"),
        ('[[schedule]]\nfault = "kil"\ntargets = ["b1"]', "did you mean 'kill'"),
        ('[[schedule]]\nfault = "kill"', "needs at least one target"),
        (
            '[[schedule]]\nfault = "power"\ntargets = ["b1"]\nparams = { mode = "most" }',
            "no power mode",
        ),
        ('[[schedule]]\ntargets = ["b1"]', "has no key 'fault'"),
        ("a = \nb = 2", "line 1"),
    ],
)
def test_bad_toml_is_reported_in_one_sentence_with_a_hint(text, expected):
    with pytest.raises(UsageError) as error:
        loads(text, origin="x.toml")
    message = str(error.value)
    assert message.startswith("x.toml")
    assert expected in message
    assert "\n" not in message


def test_vary_sets_one_key_and_keeps_the_rest():
    base = Experiment(name="v")
    varied = vary(base, "topic.min_insync_replicas", "1")
    assert varied.topic.min_insync_replicas == 1
    assert vary(varied, "topic.min_insync_replicas", "2") == base
    with pytest.raises(UsageError, match="did you mean 'profile'"):
        vary(base, "profiel", "kafka-4.0")


def test_every_experiment_file_that_ships_can_be_read():
    files = [*ROOT.glob("examples/*.toml"), *ROOT.glob("harness/experiments/*.toml")]
    files.remove(DEFAULT_PLAN)  # a plan of a night
    assert len(files) >= 3
    for file in files:
        assert experiments.load(file).name


def test_overridden_settings_are_checked_together_with_the_file() -> None:
    text = 'on = "ssh"\n[workload]\nclient = "confluent"\n'
    assert loads(text, origin="e.toml", inventory="hosts.toml").inventory == "hosts.toml"
    assert loads(text, origin="e.toml", on="local", inventory=None).on == "local"
    with pytest.raises(UsageError, match="--hosts is for --on ssh, not for local; leave it out"):
        loads(text, origin="e.toml", on="local", inventory="hosts.toml")
    with pytest.raises(UsageError, match="--hosts is for --on ssh, not for simulation"):
        loads("", origin="e.toml", inventory="hosts.toml")
    with pytest.raises(UsageError, match=r"e\.toml: on ssh the experiment needs its hosts"):
        loads(text, origin="e.toml")


EXAMPLES = [
    *sorted((ROOT / "examples").glob("*.toml")),
    ROOT / "examples" / "tinylog" / "kill.toml",
]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_schema_accepts_every_example(path):
    jsonschema.validate(tomllib.loads(path.read_text(encoding="utf-8")), json_schema())


@pytest.mark.parametrize(
    "text",
    [
        'profil = "kafka-4.0"',
        "[topic]\npartitions = 0",
        "[workload]\nprocesess = 3",
        '[workload]\nname = "append"\nmembers = 3',
        '[[schedule]]\nfault = "kil"\ntargets = ["b1"]',
        '[[schedule]]\ntargets = ["b1"]',
    ],
)
def test_the_schema_refuses_what_the_reader_refuses(text):
    with pytest.raises(UsageError):
        loads(text, origin="x.toml")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(tomllib.loads(text), json_schema())


def test_transactions_are_refused_in_compacted_topics() -> None:
    transactions = experiments.load(ROOT / "examples/transactions.toml")
    with pytest.raises(
        UsageError, match="what the cleaner of a compacted topic removed would count"
    ):
        replace(transactions, properties={"log.cleanup.policy": "compact"})
    assert replace(transactions, properties={"log.cleanup.policy": "delete"})


def test_several_topics_are_numbered_and_have_the_same_settings() -> None:
    topic = TopicConfig(name="t", count=3, partitions=2)
    assert topic.names() == ("t1", "t2", "t3")
    assert topic.partition_names() == ["t1-0", "t1-1", "t2-0", "t2-1", "t3-0", "t3-1"]
    assert TopicConfig(partitions=2).partition_names() == ["t-0", "t-1"]
    assert TopicConfig(name="x" * 249).names() == ("x" * 249,)
    with pytest.raises(UsageError, match=r"topic\.name"):
        TopicConfig(name="x" * 249, count=2)
    with pytest.raises(UsageError, match=r"topic\.count"):
        loads("[topic]\ncount = 0", origin="e.toml")
    faults = '[[schedule]]\nfault = "kill"\ntargets = ["leader:{}"]\nat_ms = 5\n'
    text = "[topic]\ncount = 2\n" + faults
    assert loads(text.format("t2-0"), origin="e.toml").schedule
    with pytest.raises(UsageError, match="t-0"):
        loads(text.format("t-0"), origin="e.toml")


def test_properties_stay_when_another_system_is_chosen_that_takes_them() -> None:
    """They were dropped without a word, and the other system ran with other settings."""
    flushing = {"log.flush.interval.messages": "1", "metadata.log.segment.bytes": "1000"}
    reference = experiments.from_data({"on": "docker", "properties": flushing})
    kafka = vary(reference, "system", "apache-kafka:4.1.2")
    assert kafka.properties == flushing
    own = experiments.from_data(
        {**experiments.to_data(kafka), "properties": {**flushing, "queued.max.requests": 9}}
    )
    assert vary(own, "system", "reference").properties == flushing
