"""Profiles: which of them behave alike, and where users find them."""

from dataclasses import asdict, replace

import pytest

from harness.cli.main import main
from system_under_test.config import DERIVED_PROFILES, PROFILES, profile_features, switches

NEWER = ("kafka-4.2", "kafka-4.3", "kafka-4.4")


@pytest.mark.parametrize("name", NEWER)
def test_the_newest_releases_behave_like_4_1_whose_tests_cover_them(name: str) -> None:
    # KAFKA-19975; the tables of the controller's decisions cover each value.
    waits_for = "target" if name == "kafka-4.2" else "target-if-fewer"
    expected = replace(
        PROFILES["kafka-4.1"],
        reassignment_waits_for=waits_for,
        # KAFKA-19233; tests of consumer groups cover both values.
        fenced_member_may_rejoin=True,
        # KAFKA-19446; the test of defect B-78 covers both values.
        strict_marker_epochs=True,
    )
    assert switches(PROFILES[name]) == switches(expected)
    assert PROFILES[name] != PROFILES["kafka-4.1"]


def test_all_other_profiles_behave_differently() -> None:
    others = [switches(features) for name, features in PROFILES.items() if name not in NEWER]
    assert len(set(others)) == len(others)


def test_a_derived_profile_differs_from_its_release_in_one_switch() -> None:
    for name, features in DERIVED_PROFILES.items():
        release = next(one for one in PROFILES if name.startswith(one))
        before, after = asdict(PROFILES[release]), asdict(features)
        changed = [key for key, value in after.items() if value != before[key]]
        assert changed == ["profile", *changed[1:]]
        assert len(changed) == 2, name
        assert profile_features(name) is features


def test_newer_releases_report_higher_levels_and_their_own_name() -> None:
    levels = [features.metadata_version for features in PROFILES.values()]
    assert levels == sorted(set(levels))
    assert [features.profile for features in PROFILES.values()] == list(PROFILES)


def test_the_help_of_every_command_with_profiles_covers_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for command in ("run", "reproduce", "swarm"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        text = " ".join(capsys.readouterr().out.split())
        current = [name for name in PROFILES if name >= "kafka-4"]
        assert f"{current[0]} to {current[-1]}" in text, command
        assert all(name in text for name in PROFILES if name < "kafka-4"), command
