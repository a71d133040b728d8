import gc
from pathlib import Path
from typing import Any

import pytest

from harness.campaigns import engine
from harness.campaigns.crew import Crew
from harness.campaigns.engine import Engine, Meter, Remaining, duration_text
from harness.campaigns.files import ROWS_FILE
from harness.campaigns.row_log import RowLog
from harness.errors import HarnessFailure
from tests.unit.harness.campaigns.fake_crew import Answer, FakeMember, fake_crew, made_up_row


class Display:
    """Keeps what was shown last."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.shown = (0.0, "")

    def message(self, text: str) -> None:
        self.messages.append(text)

    def update(self, label: str, fraction: float, detail: str = "") -> None:
        self.shown = (fraction, detail)


def _requests(count: int) -> list[dict[str, Any]]:
    return [
        {"arm": "a", "seed": seed, "index": seed, "run": f"arm-1/x-{seed}", "experiment": {}}
        for seed in range(count)
    ]


class MeterOnly(Meter):
    """A ledger that only counts."""

    def stamp(self, row: dict[str, Any]) -> None:
        assert "index" in row


def _run(directory: Path, count: int, crew: Crew) -> None:
    meter = MeterOnly(Display(), count)
    with RowLog(directory, meter.notice) as rows:
        source = Remaining(iter(_requests(count)), count, rows)
        Engine(source, crew, rows, meter, directory).run()


def _seeds(directory: Path) -> list[int]:
    with RowLog(directory) as rows:
        return [row["seed"] for row in rows.read(("a", seed) for seed in range(100_000))]


def test_every_request_has_one_row_with_any_number_of_workers(tmp_path: Path) -> None:
    _run(tmp_path, 50, fake_crew(made_up_row, members=3, size=4))
    assert _seeds(tmp_path) == list(range(50))


def test_requests_are_handed_out_as_workers_become_free(tmp_path: Path) -> None:
    """A worker that is slow gets few requests; with fixed halves it would be the last to end."""
    quick, slow = FakeMember(made_up_row), FakeMember(made_up_row)
    receive, held = slow.receive, []
    slow.receive = lambda: held.append(1) or (receive() if len(held) % 10 == 0 else [])  # type: ignore[method-assign]
    _run(tmp_path, 60, Crew([quick, slow], 2))
    assert _seeds(tmp_path) == list(range(60))
    assert len(quick.requests) > 3 * len(slow.requests) > 0


def test_an_interrupted_campaign_repeats_nothing_and_loses_nothing(tmp_path: Path) -> None:
    asked: list[int] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if len(asked) == 20:
            raise KeyboardInterrupt
        asked.append(request["seed"])
        return made_up_row(request)

    crew = fake_crew(answer, members=2)
    with pytest.raises(KeyboardInterrupt):
        _run(tmp_path, 45, crew)
    assert all(member.is_stopped for member in crew.members)  # type: ignore[attr-defined]
    done = _seeds(tmp_path)
    assert done == sorted(asked)

    def rest(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request["seed"])
        return made_up_row(request)

    _run(tmp_path, 45, fake_crew(rest, members=2))
    assert sorted(asked) == _seeds(tmp_path) == list(range(45))


@pytest.mark.parametrize(
    "answer",
    [
        lambda request: {**made_up_row(request), "seed": request["seed"] + 1000},
        lambda request: {**made_up_row(request), "arm": "b"},
    ],
)
def test_a_row_that_was_not_asked_for_is_a_failure(tmp_path: Path, answer: Answer) -> None:
    with pytest.raises(HarnessFailure, match="which it was not asked for"):
        _run(tmp_path, 3, fake_crew(answer))
    assert (tmp_path / ROWS_FILE).read_bytes() == b""


def test_a_request_that_a_worker_skipped_has_no_row(tmp_path: Path) -> None:
    """Its deadline had passed."""

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["seed"] >= 7:
            return {"arm": request["arm"], "seed": request["seed"], "skipped": True}
        return made_up_row(request)

    _run(tmp_path, 20, fake_crew(answer, members=2))
    assert _seeds(tmp_path) == list(range(7))


def test_no_more_rows_are_in_memory_than_are_in_flight(tmp_path: Path) -> None:
    """Four thousand rows; a row is large, and its position in the file small."""
    held: list[int] = []

    def rows_held() -> int:
        gc.collect()
        return sum(type(one) is dict and "trace_hash" in one for one in gc.get_objects())

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["seed"] % 800 == 799:
            held.append(rows_held())
        return made_up_row(request)

    before = rows_held()
    _run(tmp_path, 4000, fake_crew(answer, members=2))
    assert len(held) == 5
    assert max(held) <= before + 8
    assert len(_seeds(tmp_path)) == 4000


def test_progress_shows_runs_rate_findings_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    monkeypatch.setattr(engine.time, "monotonic", lambda: now_s[0])
    display = Display()
    meter = Meter(display, 1000)
    for seed in range(100):
        meter.notice(made_up_row(_requests(seed + 1)[seed], lost=seed == 7))
    meter.start()
    meter.show()
    assert display.shown == (0.1, "100/1000, 1 failing")
    now_s[0] = 60.0
    for seed in range(100, 220):
        meter.notice(made_up_row(_requests(seed + 1)[seed]))
    meter.show()
    assert display.shown == (0.22, "220/1000, 2.0 runs/s, 1 failing, 6 min left")
    meter.finish()
    assert display.messages == ["120 runs in 60 s"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (89, "89 s"), (91, "2 min"), (3540, "59 min"), (3600, "1 h 0 min")],
)
def test_a_duration_is_rounded_for_people(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
