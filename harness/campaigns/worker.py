"""Runs seeds in a separate process: JSON lines in, JSON lines out.

    {"experiment": {...}, "seed": 7, "arm": "profile=kafka-4.1", ...}  ->  {"seed": 7, "arm": ..., "verdict": ...}

Simulated seeds run in forked children of this warmed-up process, `RUNS_PER_CHILD` of them in each: starting Python
and Arrow costs a second, forking and copying memory 20 ms. A child that dies or hangs becomes a row with an
error, and the next run gets a new child; nothing is lost silently. Spark tasks start this worker as a subprocess,
because forking inside Spark's own Python worker would copy its sockets.

A run in a real environment takes place in a child too. If it hangs, or if this process is interrupted, the child
first gets SIGTERM and removes what the run made (`harness.campaigns.real_runs`).

A request has the keys `experiment`, `seed`, `arm`, `runs` (the folder of stored runs), `run` (the run's name
there) and `keep` (whether to store the run there if it is failing; real runs are always stored). It may have
`replay`, to run a failing simulated run a second time, `start_before`, a time after which the run is not
started: the response then is the request's key and `skipped`, `limit_s`, after which a real run hangs, and
`effects`, to get what the faults did (`harness.campaigns.effects`) with the row of a judged simulated run, and
`coverage`, to get what it reached (`harness.runs.coverage`). With `root_seed` that is the seed of the
run, and `seed` only its number in the campaign. A
repeat of a real run has `repeat`, its number from 1, and `repeated`, the signatures of the run that it repeats.
"""

import gc
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Self, TextIO

from harness.campaigns.effects import effects_of, row_of_effects
from harness.campaigns.forked import AnsweringChild, Ended, end_with_parent, run_in_child
from harness.campaigns.kept_runs import is_failing, keep_error, keep_run, note_error
from harness.campaigns.real_runs import STOP_S, hang_limit_s, remove_rest
from harness.campaigns.signature import findings_of
from harness.contracts.verdict import Verdict
from harness.environments.registry import DEFAULT, ENVIRONMENTS
from harness.environments.simulated import rule_decisions
from harness.errors import HarnessError, HarnessFailure
from harness.runs import experiment_file as experiments
from harness.runs.code_version import code_version
from harness.runs.coverage import coverage_of
from harness.runs.experiment import Experiment
from harness.runs.judge import judge_result
from harness.runs.promises import promises_of
from harness.runs.record import finish_run, record_run
from harness.runs.resolved import resolve
from harness.runs.result import RunResult
from harness.runs.simulated import simulate
from harness.scenarios import find_by_name
from harness.scenarios.outcome import outcome_word, predicted_outcome
from harness.systems.registry import REFERENCE
from results.layout import parse_stamp
from results.store import RunStore

RUN_WALL_S_MAX = 300.0
"""A run of the standard scenario takes seconds; five minutes mean that it hangs."""

RUNS_PER_CHILD = 16
"""How many simulated runs one child makes: enough that forking does not count, few enough that its memory stays
small."""

SUMMARY_KEYS = (
    "seed",
    "profile",
    "verdict",
    "reasons",
    "unexcused_lost_records",
    "excused_lost_records",
    "anomalies",
    "trace_hash",
    "unavailable_ms",
    "elapsed_ms",
    "operations",
    "faults",
    "counters",
    "marks",
    "violations",
    "system",
    "on",
    "drawn",
)
ROW_KEYS = (
    *SUMMARY_KEYS,
    "arm",
    "run",
    "error",
    "not_stored",
    "outcome",
    "predicted",
    "replayed",
    "findings",
    "fault_families",
    "tested_nothing",
    "unknown_reason",
    "repeat",
    "repeated",
    "wall_s",
    "cpu_s",
)
"""Keys of a row. `outcome`, `predicted`: of a scripted scenario, otherwise empty. `replayed`: see `Replayer`.
`findings`: see `harness.campaigns.signature`. `fault_families`, `tested_nothing`, `unknown_reason`: see
`harness.campaigns.effects`. `repeat`, `repeated`: as in the request, 0 and empty without.
`error`: why the run has no verdict. `not_stored`: why a run that had to be stored is not. `wall_s`: how long
everything took. `cpu_s`: processor time of the simulation alone, without judging and storing."""


def run_seed(request: Mapping[str, Any]) -> dict[str, Any]:
    """Runs and judges one seed in this process, and stores it if it is failing and has to be kept.

    Returns:
        One row (`ROW_KEYS`).
    """
    began_s = time.perf_counter()
    seed = _root_seed(request)
    experiment, drawn = resolve(experiments.from_data(request["experiment"]), seed)
    cpu_began_s = time.process_time()
    result = simulate(experiment, seed, records_decisions=bool(request.get("coverage")))
    cpu_s = time.process_time() - cpu_began_s
    result.drawn = drawn
    try:
        verdict, summary = judge_result(experiment, seed, result)
    except Exception as error:
        row = failed_row(request, _sentence(error))
        _keep(request, row, experiment, result, None)
        return row
    row = _row(request, summary)
    row.update(_outcome(experiment, verdict))
    row.update(row_of_effects(experiment, verdict))
    row["findings"] = _findings(experiment, result, verdict, row)
    if request.get("effects"):
        row["effects"] = effects_of(result)
    if request.get("coverage"):
        row |= coverage_of(result).to_row()
    if is_failing(row):
        _keep(request, row, experiment, result, verdict)
    row.update(wall_s=time.perf_counter() - began_s, cpu_s=cpu_s)
    return row


def run_real_seed(request: Mapping[str, Any]) -> dict[str, Any]:
    """Runs, stores and judges one seed in its real environment; an error becomes a row."""
    began_s, cpu_began_s = time.perf_counter(), time.process_time()
    try:
        seed = request["seed"]
        planned = experiments.from_data(request["experiment"])
        experiment, _ = resolve(planned, seed)
        folder, _, name = request["run"].partition("/")
        store = RunStore(Path(request["runs"]))
        directory, result = record_run(planned, seed, store, now=parse_stamp(name), folder=folder)
        verdict, summary = judge_result(experiment, seed, result)
        finish_run(directory, store.run_id(directory), verdict)
    except (HarnessError, HarnessFailure) as error:
        return failed_row(request, str(error))
    row = _row(request, summary)
    row.update(_outcome(experiment, verdict))
    row.update(row_of_effects(experiment, verdict))
    row["findings"] = _findings(experiment, result, verdict, row)
    cpu_s = time.process_time() - cpu_began_s
    row.update(wall_s=time.perf_counter() - began_s, cpu_s=cpu_s)
    return row


def _findings(
    experiment: Experiment, result: RunResult, verdict: Verdict, row: Mapping[str, Any]
) -> list[dict[str, Any]]:
    found = findings_of(
        experiment,
        result.tables,
        verdict,
        outcome=row["outcome"],
        predicted=row["predicted"],
    )
    return [finding.to_json() for finding in found]


class SimulatedRuns:
    """Runs simulated seeds in forked children. Mutable; use it as a context manager."""

    def __init__(self) -> None:
        self._child: AnsweringChild | None = None
        self._runs = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.__exit__()

    def row(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Runs one seed; a child that dies or hangs gives a row with an error."""
        if self._child is None or self._child.is_over or self._runs == RUNS_PER_CHILD:
            self.__exit__()
            self._child, self._runs = AnsweringChild(_answer), 0
        self._runs += 1
        ended = self._child.ask(json.dumps(request), RUN_WALL_S_MAX)
        if ended.text is None:
            return _lost(request, f"the run took longer than {RUN_WALL_S_MAX:g} s")
        return _row_of(ended) or _lost(request, f"the run's process {ended.sentence}")


def _answer(line: str) -> str:
    return _row_text(json.loads(line), run_seed, _lost)


def run_real_seed_forked(request: Mapping[str, Any]) -> dict[str, Any]:
    """Runs one seed in its real environment, in a forked child that ends after a limit.

    A child that hangs first gets a signal and time to remove what it made. If it is killed, or dies, what it left
    on this machine and on hosts is removed here.
    """
    began_s = time.perf_counter()
    experiment, _ = resolve(experiments.from_data(request["experiment"]), request["seed"])
    limit_s = request.get("limit_s") or hang_limit_s(experiment)
    # What a real run has recorded stays, so its error is only noted there, below.
    ended = run_in_child(
        lambda: _row_text(request, run_real_seed, failed_row), limit_s, stop_s=STOP_S
    )
    row = _row_of(ended)
    if row is None:
        problems = remove_rest(experiment, ended.pid, Path(request["runs"]) / request["run"])
        what = f"the run's process {ended.sentence}"
        if ended.text is None:
            what = f"the run did not end within {limit_s:g} s, the limit for a run that hangs"
            if ended.was_killed:
                what += f", nor within {STOP_S:g} s after SIGTERM, and was killed"
        row = failed_row(request, "; ".join([what, *problems]))
    if row["error"]:
        row["wall_s"] = time.perf_counter() - began_s
    if row["error"] and request["keep"]:
        note_error(Path(request["runs"]) / request["run"], request["run"], row)
    return row


def _row_of(ended: Ended) -> dict[str, Any] | None:
    """Returns the row that a child returned, None if it is missing or incomplete."""
    try:
        row: dict[str, Any] = json.loads(ended.text or "")
    except ValueError:
        return None
    return row


def failed_row(request: Mapping[str, Any], error: str) -> dict[str, Any]:
    """Returns the row of a run that did not finish: unknown, with nothing counted."""
    return {
        "seed": request["seed"],
        "arm": request["arm"],
        "run": request["run"],
        "profile": "",
        "verdict": "unknown",
        "reasons": [error],
        "unexcused_lost_records": 0,
        "excused_lost_records": 0,
        "anomalies": [],
        "trace_hash": "",
        "unavailable_ms": 0.0,
        "elapsed_ms": 0.0,
        "operations": 0,
        "faults": 0,
        "counters": {},
        "marks": {},
        "violations": [],
        "system": request["experiment"].get("system", REFERENCE),
        "on": request["experiment"].get("on", DEFAULT),
        "drawn": {},
        "error": error,
        "not_stored": "",
        "outcome": "",
        "predicted": "",
        "replayed": "",
        "findings": [],
        "fault_families": {},
        "tested_nothing": False,
        "unknown_reason": "",
        "repeat": request.get("repeat", 0),
        "repeated": list(request.get("repeated", ())),
        "wall_s": 0.0,
        "cpu_s": 0.0,
    }


def main(requests: TextIO, responses: TextIO) -> None:
    """Serves requests until the input ends."""
    is_warm = False
    with Replayer() as replayer, SimulatedRuns() as simulated:
        for line in filter(str.strip, requests):
            request = json.loads(line)
            is_simulated = _is_simulated(request)
            if is_simulated and not is_warm:
                warm_up()
                is_warm = True
            if is_simulated and request.get("coverage"):
                rule_decisions.record()  # once here, so that no later child has to
            if time.time() > request.get("start_before", math.inf):
                row = {key: request[key] for key in ("arm", "seed", "repeat") if key in request}
                row["skipped"] = True
            elif is_simulated:
                row = simulated.row(request)
                if request.get("replay") and is_failing(row) and row["trace_hash"]:
                    row["replayed"] = replayer.compare(request, row)
            else:
                row = run_real_seed_forked(request)
            responses.write(json.dumps(row, sort_keys=True) + "\n")
            responses.flush()


class Replayer:
    """Runs simulated runs a second time, in another process: with other hashes of strings, for example.

    A context manager; its process is started with the first replay and ends with the block.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "Replayer":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def compare(self, request: Mapping[str, Any], row: Mapping[str, Any]) -> str:
        """Returns "same", "different hash" or "different verdict"; "no replay: ..." if there was no second run."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "harness.campaigns.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        keys = ("experiment", "seed", "root_seed", "arm", "run")
        request = {key: request[key] for key in keys if key in request}
        request["keep"] = False
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            again = json.loads(self._process.stdout.readline())
        except (OSError, ValueError):
            self.__exit__()
            self._process = None
            return "no replay: its process ended"
        if again["error"]:
            return f"no replay: {again['error']}"
        if again["trace_hash"] != row["trace_hash"]:
            return "different hash"
        return "same" if again["verdict"] == row["verdict"] else "different verdict"


def warm_up() -> None:
    """Loads everything that a run loads while it runs, so that no child has to load it again.

    Only a run loads exactly what runs need.
    """
    experiment = Experiment(weather="calm", duration_ms=1, final_phase_ms=20_000)
    judge_result(experiment, 0, simulate(experiment, 0))
    # What is loaded by now is never garbage; without scanning it, no child has to copy its pages.
    gc.collect()
    gc.freeze()


def _is_simulated(request: Mapping[str, Any]) -> bool:
    return ENVIRONMENTS[request["experiment"].get("on", DEFAULT)].is_simulated


def _row(request: Mapping[str, Any], summary: Mapping[str, Any]) -> dict[str, Any]:
    row = {key: summary[key] for key in SUMMARY_KEYS}
    empty = dict.fromkeys(("error", "not_stored", "replayed"), "")
    row["repeat"] = request.get("repeat", 0)
    row["repeated"] = list(request.get("repeated", ()))
    own = {key: request[key] for key in ("seed", "arm", "run")}
    return {**row, **empty, **own}


def _outcome(experiment: Experiment, verdict: Verdict) -> dict[str, str]:
    """Returns how a scripted scenario ended and how it should."""
    if not experiment.scenario:
        return {"outcome": "", "predicted": ""}
    predicted = predicted_outcome(
        find_by_name(experiment.scenario),
        promises_of(experiment).outcome_family,
        system=experiment.system,
        version=experiment.version,
    )
    return {"outcome": outcome_word(verdict), "predicted": predicted}


def _keep(
    request: Mapping[str, Any],
    row: dict[str, Any],
    experiment: Experiment,
    result: RunResult,
    verdict: Verdict | None,
) -> None:
    """Stores the run if requested; if that is not possible the row states why."""
    if not request["keep"]:
        return
    directory = Path(request["runs"]) / request["run"]
    try:
        keep_run(directory, request["run"], experiment, _root_seed(request), result, verdict)
    except Exception as error:  # the row must not depend on a full disk
        row["not_stored"] = _sentence(error)


def _lost(request: Mapping[str, Any], error: str) -> dict[str, Any]:
    """Returns the row of a run whose process left nothing behind, and stores what is known of it."""
    row = failed_row(request, error)
    if request["keep"]:
        directory = Path(request["runs"]) / request["run"]
        try:
            # What is stored is a run of its own, whose seed is not its number in the campaign.
            stored = {**row, "seed": _root_seed(request)}
            keep_error(directory, request["run"], stored, request["experiment"])
        except Exception as problem:  # as above
            row["not_stored"] = _sentence(problem)
    return row


def _root_seed(request: Mapping[str, Any]) -> int:
    seed: int = request.get("root_seed", request["seed"])
    return seed


def _row_text(
    request: Mapping[str, Any],
    run: Callable[[Mapping[str, Any]], Any],
    on_error: Callable[[Mapping[str, Any], str], dict[str, Any]],
) -> str:
    """Returns the row of a run as JSON; every error becomes a row."""
    try:
        return json.dumps(run(request), sort_keys=True)
    except BaseException as error:  # the outermost handler of a child
        return json.dumps(on_error(request, _sentence(error)))


def _sentence(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _interrupted(_: int, __: FrameType | None) -> None:
    # Only once: a second signal must not interrupt the removal of what the run made.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _serve(arguments: Sequence[str] = ()) -> int:
    """Serves standard input; SIGTERM ends a real run cleanly.

    Args:
        arguments: Optionally the version of the code that this must be: a row of other code would be wrong.
    """
    if arguments and arguments[0] != (code := code_version()):
        print(
            f"this worker has version {code} of the code, not {arguments[0]}; ship the code with "
            "`laststand bundle spark`, or install the same version",
            file=sys.stderr,
        )
        return 1
    signal.signal(signal.SIGTERM, _interrupted)
    end_with_parent(signal.SIGTERM)
    # Libraries that print must not print among the rows.
    responses = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        main(sys.stdin, responses)
    except KeyboardInterrupt:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_serve(sys.argv[1:]))
