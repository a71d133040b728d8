"""The result of a night as JSON-compatible data: what `nightly.json` holds and every other output shows."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.campaigns.effects import CampaignEffects
from harness.campaigns.files import RUNS_FOLDER, SHRUNK_PREFIX
from harness.campaigns.night_summary import JobSummary, NightSummary, Rate
from harness.campaigns.night_tables import job_row
from harness.campaigns.nights import job_path
from harness.campaigns.requests import mutant_command, run_command
from harness.campaigns.triage import (
    KNOWN,
    NEW,
    OPEN,
    Absent,
    Triage,
    Triaged,
    counts_by_status,
    exit_code_of,
    unknown_jobs,
)
from harness.environments.registry import DEFAULT, ENVIRONMENTS
from harness.errors import HistoryError
from results.layout import RunFiles
from results.report.night_story import key_entries
from results.report.run import shell_word
from results.report.story import time_of
from results.store import read_json

SCHEMA = 1

STORIES_MAX = 20
"""Findings whose story is told; the others only link to their report."""


def result_of(
    summary: NightSummary,
    triage: Triage,
    trends: Sequence[Mapping[str, Any]],
    *,
    directory: Path,
) -> dict[str, Any]:
    """Returns the result of a night.

    Args:
        summary: The night, counted.
        triage: Its findings against earlier nights.
        trends: One row per night and job (`harness.campaigns.trends`), this night included.
        directory: The night's directory; paths of stored runs may be relative to it.
    """
    findings = [_finding(found, directory) for found in triage.findings]
    for finding in findings[:STORIES_MAX]:
        finding["story"] = _story(finding["examples"])
    code = exit_code_of(summary, triage)
    return {
        "schema": SCHEMA,
        "night": summary.plan.night,
        "exit_code": code,
        "sentence": _sentence(summary, triage),
        "runs": summary.runs,
        "counts": counts_by_status(triage),
        "findings": findings,
        "resolved": [_absent(one) for one in triage.resolved],
        "absent": [_absent(one) for one in triage.absent],
        "expired": [entry.to_json() for entry in triage.expired],
        "alarms": [_alarm(alarm, directory) for alarm in summary.alarms],
        "jobs": [
            _job(job, number, directory)
            for number, job in enumerate(summary.jobs.values(), start=1)
        ],
        "trends": [dict(row) for row in trends],
    }


def _sentence(summary: NightSummary, triage: Triage) -> str:
    """Returns the night in one sentence, what matters most first."""
    counts = counts_by_status(triage)
    repeats = sum(job.nondeterministic for job in summary.jobs.values())
    unknown = unknown_jobs(summary.jobs)
    parts = []
    if repeats:
        parts.append(f"{_count(repeats, 'simulated run')} did not repeat")
    if counts[NEW]:
        parts.append(_count(counts[NEW], "new finding"))
    if counts[OPEN]:
        parts.append(_count(counts[OPEN], "open finding"))
    if not counts[NEW] + counts[OPEN]:
        parts.append("nothing new")
    if counts[KNOWN]:
        parts.append(_count(counts[KNOWN], "known finding"))
    if counts["resolved"]:
        parts.append(f"{counts['resolved']} resolved")
    repeated = sum(job.repeats for job in summary.jobs.values())
    noted = f" ({_count(repeated, 'repeat')} among them)" if repeated else ""
    sentence = f"{', '.join(parts)} in {_count(summary.runs, 'run')}{noted}"
    return f"{sentence}; the verdict on {', '.join(unknown)} is unknown" if unknown else sentence


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _finding(found: Triaged, directory: Path) -> dict[str, Any]:
    group = found.group
    return {
        "signature": group.signature,
        "title": group.title,
        "status": found.status,
        "fails": found.fails,
        "note": found.note,
        "known": found.known.to_json() if found.known else None,
        "first_night": found.first_night,
        "nights": found.nights,
        "runs": sum(group.runs.values()),
        "runs_by_job": dict(group.runs),
        "confirmed": group.confirmed,
        "replayed": group.replayed,
        "rates": [rate_json(job, rate) for job, rate in group.rates.items()],
        "parts": dict(group.parts),
        "examples": [_example(example, directory) for example in group.examples],
        "story": [],
        "shrunk": shrunk_run(directory, group.signature),
    }


def shrunk_run(directory: Path, signature: str) -> dict[str, Any] | None:
    """Returns the smallest run that shows a finding of a night, as data; None if the finding was not shrunk.

    Args:
        directory: The night's directory.
        signature: Of the finding.

    Raises:
        HistoryError: Its `shrink.json` is damaged.
    """
    found = (directory / RUNS_FOLDER / f"{SHRUNK_PREFIX}{signature}").glob("*/shrink.json")
    for path in sorted(found, reverse=True):
        files = RunFiles(path.parent)
        seed = read_json(files.run)["seed"]
        return {
            **{key: read_json(path)[key] for key in ("before", "after", "cause", "ended")},
            "run": str(path.parent),
            "report": str(files.report) if files.report.exists() else "",
            "command": f"laststand run {shell_word(str(files.experiment))} --seed {seed}",
        }
    return None


def rate_json(job: str, rate: Rate) -> dict[str, Any]:
    """Returns how often a finding occurred again in the repeats of a job, with the 95 % interval of the rate."""
    low, high = rate.interval
    return {
        "job": job,
        "recurred": rate.recurred,
        "repeats": rate.repeats,
        "rate": rate.recurred / rate.repeats,
        "low": low,
        "high": high,
        "is_flaky": rate.is_flaky,
    }


def _example(example: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    run = _stored(str(example["stored"]), directory)
    command = report = ""
    if run is not None:
        files = RunFiles(run)
        report = str(files.report) if files.report.exists() else ""
        environment = ENVIRONMENTS.get(str(example["world"]))
        if environment is not None and environment.is_simulated:
            command = f"laststand replay {shell_word(str(run))}"
        else:
            command = f"laststand run {shell_word(str(files.experiment))} --seed {example['seed']}"
    return {**example, "run": str(run or ""), "report": report, "command": command}


def _stored(stored: str, directory: Path) -> Path | None:
    """Returns the directory of a stored run, if it is on this machine."""
    paths = (Path(stored), directory / stored) if stored else ()
    return next((path for path in paths if RunFiles(path).run.is_file()), None)


def _story(examples: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the story of the first example that is stored; none if it cannot be read."""
    for example in examples:
        if example["run"]:
            try:
                entries = key_entries(Path(example["run"]), example["at_ns"])
            except HistoryError:
                continue
            return [
                {
                    "at_s": time_of(entry) / 1e9,
                    "kind": entry.kind,
                    "title": entry.title,
                    "tone": entry.tone,
                }
                for entry in entries
            ]
    return []


def _absent(one: Absent) -> dict[str, Any]:
    return {
        "signature": one.signature,
        "title": one.title,
        "jobs": list(one.jobs),
        "last_night": one.last_night,
        "nights_without": one.nights_without,
        "known": one.known.to_json() if one.known else None,
    }


def _alarm(alarm: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    example = _example({**alarm, "world": DEFAULT}, directory)
    return {key: example[key] for key in ("job", "seed", "replayed", "run", "command")}


def _job(job: JobSummary, number: int, directory: Path) -> dict[str, Any]:
    reasons = job.unknown_reasons
    return {
        **job_row(job),
        "is_simulated": job.job.is_simulated,
        "is_unknown": bool(reasons),
        "unknown_reasons": reasons,
        "unknown_command": _unknown_command(job.effects, job_path(directory, number)),
        "features": job.features,
        "mutants": job.mutants,
    }


def _unknown_command(effects: CampaignEffects, experiment: Path) -> str:
    """Returns what repeats the first run that is unknown for a reason of its own; empty if none is."""
    if effects.unknown_seed is None:
        return ""
    experiment = experiment.resolve()
    if "file" in effects.unknown_search:
        return mutant_command(experiment.parent, effects.unknown_search)
    return run_command(experiment, effects.unknown_seed)
