"""A taste of the fuzzers on every run of the tests; `python -m tests.fuzz` is the meal."""

import pytest

from tests.fuzz import corpus, frames, segments
from tests.fuzz.__main__ import main
from tests.parts import parts


@pytest.mark.parametrize("seed", [1, 2])
def test_mutated_segments_are_recovered(seed: int) -> None:
    found = [finding for finding in segments.run(seed, 3000) if finding is not None]
    assert found == []


@pytest.mark.parametrize("seed", parts([1, 2], quick=1))
def test_mutated_frames_stop_no_node(seed: int) -> None:
    found = [finding for finding in frames.run(seed, 12_000) if finding is not None]
    assert found == []


def test_the_corpus_has_every_api_in_every_version() -> None:
    for role in ("broker", "controller"):
        maker_places = {
            (api.key, version)
            for api in corpus.APIS
            if role in api.roles
            for version in range(api.min_version, api.max_version + 1)
        }
        stored = {
            (int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big"))
            for frame in corpus.stored(role)
        }
        assert maker_places <= stored


def test_the_same_seed_gives_the_same_cases() -> None:
    def cases() -> list[bytes]:
        import random

        maker = frames._Maker("broker", random.Random("x"), ())
        return [maker.frame() for _ in range(200)]

    assert cases() == cases()


def test_the_command_reports_its_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["segments", "--count", "200", "--seed", "3"]) == 0
    assert "segments: 200 cases" in capsys.readouterr().out


def test_a_finding_is_reported_and_fails_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(segments, "check", lambda *_: "it broke")
    assert main(["segments", "--count", "3", "--seed", "3"]) == 1
    assert "case 0: it broke" in capsys.readouterr().out
