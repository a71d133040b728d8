import pytest

from harness.errors import UsageError
from harness.systems.apache_kafka.versions import (
    ELR_FEATURE,
    SUPPORTED,
    Version,
    feature_levels,
    has_min_isr_gate,
    java_range,
    parse_version,
    profile_name,
    promises,
)
from harness.systems.reference.adapter import SYSTEM as REFERENCE


def test_versions_are_ordered_by_their_numbers() -> None:
    assert list(SUPPORTED) == sorted(SUPPORTED)
    assert Version(4, 10, 0) > Version(4, 9, 5)
    assert str(parse_version("4.1.2")) == "4.1.2"


@pytest.mark.parametrize("text", ["4.1", "4.1.3", "v4.1.2", "4.1.2 ", "", "٤.1.2", "4.1.2.0"])
def test_an_unsupported_version_is_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(UsageError, match=r"no supported version of Apache Kafka is called") as info:
        parse_version(text)
    assert "3.4.1, 3.5.2" in str(info.value)


def test_a_near_version_is_suggested() -> None:
    with pytest.raises(UsageError, match=r"did you mean '4\.1\.[0-2]'"):
        parse_version("4.1.3")


@pytest.mark.parametrize(
    ("version", "level", "profile", "family"),
    [
        ("3.4.1", None, "kafka-3.4", "elr-off-no-gate"),
        ("3.5.2", None, "kafka-3.4", "elr-off-no-gate"),
        ("3.6.2", None, "kafka-3.6", "elr-off-no-gate"),
        ("3.7.2", None, "kafka-3.9", "elr-off"),
        ("3.9.1", None, "kafka-3.9", "elr-off"),
        ("4.0.2", None, "kafka-4.0", "elr-off"),
        ("4.0.2", 1, "kafka-4.1", "elr-on"),
        ("4.1.2", None, "kafka-4.1", "elr-on"),
        ("4.1.2", 0, "kafka-4.0", "elr-off"),
        ("4.2.1", None, "kafka-4.2", "elr-on"),
        ("4.3.1", None, "kafka-4.3", "elr-on"),
        ("4.4.0", None, "kafka-4.4", "elr-on"),
        ("4.4.0", 0, "kafka-4.0", "elr-off"),
    ],
)
def test_profile_and_promises_follow_from_version_and_feature_level(
    version: str, level: int | None, profile: str, family: str
) -> None:
    parsed = parse_version(version)
    levels = feature_levels(parsed, None if level is None else {ELR_FEATURE: level})
    assert profile_name(parsed, levels) == profile
    promised = promises(parsed, levels)
    assert promised.outcome_family == family
    assert promised.elr_on is (family == "elr-on")


@pytest.mark.parametrize("version", SUPPORTED, ids=str)
def test_promises_are_those_of_the_profile_in_the_reference_system(version: Version) -> None:
    levels = feature_levels(version)
    profile = profile_name(version, levels)
    assert promises(version, levels) == REFERENCE.profiles[profile]


def test_the_gate_came_with_3_7() -> None:
    assert not has_min_isr_gate(Version(3, 6, 2))
    assert has_min_isr_gate(Version(3, 7, 2))


def test_a_feature_that_the_version_does_not_have_is_refused() -> None:
    assert feature_levels(parse_version("3.9.1")) == {}
    with pytest.raises(UsageError, match=r"3\.9\.1 has no feature .* \(known: none\)"):
        feature_levels(parse_version("3.9.1"), {ELR_FEATURE: 1})
    with pytest.raises(UsageError, match=f"has no feature 'elr' .* \\(known: {ELR_FEATURE}\\)"):
        feature_levels(parse_version("4.1.2"), {"elr": 1})


@pytest.mark.parametrize("level", [2, -1, True, "1"])
def test_a_level_that_does_not_exist_is_refused(level: int) -> None:
    with pytest.raises(UsageError, match="supports 0 and 1"):
        feature_levels(parse_version("4.1.2"), {ELR_FEATURE: level})


def test_kafka_4_needs_java_17() -> None:
    assert 11 not in java_range(parse_version("4.0.2"))
    assert 17 in java_range(parse_version("4.0.2"))
    assert 11 in java_range(parse_version("3.6.2"))
    assert 8 not in java_range(parse_version("3.6.2"))
    assert str(java_range(parse_version("4.4.0"))) == "Java 17 to 25"
