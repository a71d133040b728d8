"""A candidate that lost an election (RAFT-10)."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from system_under_test.config import FAST_TIMINGS, NodeConfig, profile_features
from system_under_test.raft.elections import Elections
from system_under_test.raft.state import Candidate, Tally, Unattached

VOTERS = (11, 12, 13)


class Quorum:
    """What elections need of a quorum, in the state of a candidate."""

    def __init__(self, profile: str) -> None:
        self.config = NodeConfig(
            node_id=11,
            role="controller",
            address="c11:9093",
            cluster_id="c",
            voters=(),
            features=profile_features(profile),
            timings=FAST_TIMINGS,
        )
        longest = SimpleNamespace(randrange=lambda _low, high: high - 1)
        self.host = SimpleNamespace(
            random=SimpleNamespace(stream=lambda _name: longest),
            observer=SimpleNamespace(mark=lambda _name, **_details: None),
        )
        self.is_voter = True
        self.node_id = 11
        self.voters = VOTERS
        self.log_position: Any = SimpleNamespace(last_epoch=1, end_offset=1)
        self.state: Any = Candidate(
            epoch=3, voted_id=11, tally=Tally(voters=VOTERS, granted=frozenset({11}))
        )

    def hear(self, _epoch: int, _leader_id: int) -> bool:
        return False

    def remember(self, state: Any) -> None:
        self.state = state


class Link:
    """Keeps the requests for votes."""

    retry_delay_s = 1.0

    def __init__(self) -> None:
        self.answers: list[Any] = []

    def send(self, _request: Any, _timeout_ms: float, answered: Any) -> None:
        self.answers.append(answered)


@pytest.mark.parametrize(
    ("profile", "backs_off"), [("kafka-3.9", True), ("kafka-4.0", True), ("kafka-4.1", False)]
)
def test_a_candidate_that_lost_backs_off_until_4_0_and_then_waits_for_its_timeout(
    profile: str, backs_off: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = SimpleNamespace(epoch=3, leader_id=-1, vote_granted=False)
    monkeypatch.setattr(
        "system_under_test.raft.elections.messages.read_response", lambda _response: refusal
    )

    async def story() -> tuple[float, float]:
        quorum = Quorum(profile)
        links = {12: Link(), 13: Link()}
        elections = Elections(quorum, links)  # type: ignore[arg-type]
        elections.entered(Unattached(epoch=2), quorum.state)
        before = elections._deadline_s
        for link in links.values():
            (answered,) = link.answers
            answered(object())
        after = elections._deadline_s
        elections.stop()
        assert before is not None
        assert after is not None
        return before, after

    before, after = asyncio.run(story())
    assert (after != before) is backs_off


def test_a_lost_tally_needs_a_majority_of_refusals() -> None:
    tally = Tally(voters=VOTERS, granted=frozenset({11}))
    assert not tally.with_response(12, False).is_lost
    assert replace(tally, rejected=frozenset({12, 13})).is_lost
