"""Random crashes, cuts and power losses: commits survive any of them."""

from random import Random

import pytest

from harness.simulation.errors import LimitReached
from harness.simulation.weather import CALM, Weather, draw_weather
from system_under_test.config import KAFKA_TIMINGS
from system_under_test.invariants import InvariantViolation
from system_under_test.raft.node import NotLeaderError
from tests.simulation.raft_story import QuorumStory, worlds_closed

__all__ = ["worlds_closed"]

STEPS = 25
PROFILES = ("kafka-4.1", "kafka-3.9")


class Chaos:
    """Injects random faults into a quorum, one after the other, while the leader appends."""

    def __init__(self, story: QuorumStory, seed: int, *, lose_all_only: bool, pace: float) -> None:
        self.story = story
        self.random = Random(seed)
        self.lose_all_only = lose_all_only
        self.pace = pace
        self.cuts: list[object] = []
        self.appended = 0
        self.power_cuts_that_bit = 0

    def step(self) -> None:
        story, draw = self.story, self.random
        name = draw.choice((*story.voters, *story.observers))
        what = draw.choice(
            ("append", "append", "append", "power", "power", "kill", "start", "cut", "heal")
        )
        alive = story.world.nodes[name].is_alive
        if what == "append":
            self.append()
        elif what == "power" and alive:
            mode = "lose_all" if self.lose_all_only else "draw"
            report = story.power_off(name, mode)
            self.power_cuts_that_bit += report.lost_bytes > 0
        elif what == "kill" and alive:
            story.kill(name)
        elif what == "start":
            self.start_all(share=0.7)
        elif what == "cut":
            self.cuts.append(story.isolate(name))
        elif what == "heal":
            self.heal()
        story.run(draw.choice((1, 5, 40, 200, 500)) * self.pace)

    def append(self) -> None:
        for name in self.story.alive(self.story.voters):
            if self.story.raft(name).is_leader:
                for _ in range(self.random.randrange(1, 4)):
                    self.appended += 1
                    self.story.append(name, f"v{self.appended}")

    def start_all(self, share: float = 1.0) -> None:
        for name, node in self.story.world.nodes.items():
            if not node.is_alive and self.random.random() < share:
                self.story.start(name)

    def heal(self) -> None:
        self.story.heal(*self.cuts)
        self.cuts.clear()

    def run(self) -> None:
        for _ in range(STEPS):
            self.step()
        self.heal()
        self.start_all()
        self.commit_one_more()
        self.story.await_converged(within_ms=60_000 * self.pace)

    def commit_one_more(self) -> None:
        story = self.story
        for _ in range(20):
            leader = story.await_leader(within_ms=60_000 * self.pace)
            try:
                story.append(leader, "the end")
                story.until(lambda: "the end" in story.ledger.values(), within_ms=5_000 * self.pace)
            except (NotLeaderError, LimitReached):
                continue
            return
        raise AssertionError("no leader stays in office after everything was healed")


def chaos(seed: int, *, weather: Weather = CALM, off: tuple[str, ...] = ()) -> Chaos:
    slow = weather is not CALM
    story = QuorumStory(
        seed=seed,
        observers=2,
        profile=PROFILES[seed % 2],
        weather=weather,
        off=off,
        # 50 ms of latency with a long tail are too much for election timeouts of 150 ms.
        **({"timings": KAFKA_TIMINGS} if slow else {}),
    )
    result = Chaos(story, seed, lose_all_only=not slow, pace=6.0 if slow else 1.0)
    result.run()
    return result


@pytest.mark.parametrize("seed", range(40))
def test_power_cuts_and_partitions_never_undo_a_commit(seed: int) -> None:
    result = chaos(seed)
    story = result.story
    # Leader completeness: every record that any node ever learned is in the log that all nodes have now.
    assert story.ledger.values() == story.values_in_log("b1")
    assert "the end" in story.ledger.values()


def test_the_random_faults_cause_elections_and_crashes() -> None:
    """The swarm above is meaningful only if power cuts destroy data and logs diverge in it."""
    bitten = truncated = resigned = 0
    for seed in range(10):
        result = chaos(seed)
        bitten += result.power_cuts_that_bit
        truncated += result.story.marks.count("metadata-truncated")
        resigned += result.story.marks.count("quorum-restarted-as-resigned")
    assert bitten > 5
    assert truncated > 0
    assert resigned > 0


@pytest.mark.parametrize("seed", range(100, 112))
def test_commits_survive_in_every_weather(seed: int) -> None:
    result = chaos(seed, weather=draw_weather(Random(seed)))
    assert result.story.ledger.values() == result.story.values_in_log("b1")


@pytest.mark.parametrize("rule", ["RAFT-2", "RAFT-5"])
def test_the_swarm_finds_a_missing_rule(rule: str) -> None:
    for seed in range(20):
        try:
            chaos(seed, off=(rule,))
        except InvariantViolation:
            return
    raise AssertionError(f"20 seeds did not notice that {rule} is missing")
