"""What a run found, in one word, and how often several runs found it."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from checkers.kernels.verdict_json import verdict_from_json
from harness.contracts.verdict import Validity, Verdict
from harness.errors import HistoryError, UsageError
from harness.runs.experiment import Experiment
from harness.scenarios import find_by_name
from harness.scenarios.outcome import outcome_word, predicted_outcome
from results.layout import RunFiles
from results.store import read_json, write_json


def stored_verdict(directory: Path) -> Verdict:
    """Reads verdict.json; a run that was not judged has an unknown verdict.

    Raises:
        HistoryError: It is damaged.
    """
    path = RunFiles(directory).verdict
    try:
        return verdict_from_json(read_json(path))
    except FileNotFoundError:
        return Verdict(validity=Validity.UNKNOWN, reasons=("not judged",))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise HistoryError(f"{path} is damaged; `laststand check` writes a new one") from None


def add_outcome(directory: Path, summary: dict[str, Any]) -> dict[str, Any]:
    """Adds the outcome of a scripted scenario and the predicted one to a run's summary, and stores it.

    Returns:
        The new summary; the same one if the run had no scenario.

    Raises:
        HistoryError: The summary names a scenario that does not exist, or no column of its table.
    """
    if not summary.get("scenario"):
        return summary
    try:
        scenario = find_by_name(str(summary["scenario"]))
        predicted = predicted_outcome(
            scenario,
            str(summary["outcome_family"]),
            system=str(summary["system"]),
            version=str(summary["version"]),
        )
    except (KeyError, ValueError, UsageError) as error:
        raise HistoryError(f"{RunFiles(directory).run} is damaged: {error}") from None
    outcome = outcome_word(stored_verdict(directory))
    summary = {
        **summary,
        "outcome": outcome,
        "predicted": predicted,
        "as_predicted": outcome == predicted,
    }
    write_json(RunFiles(directory).run, summary)
    return summary


def finding_of(summary: Mapping[str, Any]) -> str:
    """Returns what a run found, in a word that means the same in every world.

    That is the outcome of a scripted scenario, and otherwise the anomaly that its verdict names first. A run that
    found nothing is "valid" or "unknown".
    """
    if summary.get("outcome"):
        return str(summary["outcome"])
    forbidden = forbidden_anomalies(summary)
    for reason in summary.get("reasons", ()):
        word = re.split(r"[ :]", str(reason), maxsplit=1)[0]
        if word in forbidden:
            return word
    return str(summary.get("verdict", "unknown"))


def forbidden_anomalies(summary: Mapping[str, Any]) -> frozenset[str]:
    """Returns the ids of the anomalies that nothing allowed."""
    return frozenset(
        str(anomaly["id"])
        for anomaly in summary.get("anomalies", ())
        if anomaly["judgement"] == "forbidden"
    )


def confirms(summary: Mapping[str, Any], finding: str) -> bool:
    """Returns whether a run has the finding of another one, possibly among others."""
    return finding == finding_of(summary) or finding in forbidden_anomalies(summary)


def attempts_summary(
    experiment: Experiment, summaries: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Counts how several attempts at a scripted scenario ended.

    Returns:
        JSON-compatible data: `attempts`, `with_loss` (attempts), `lost_records`, `outcomes` (attempts by outcome),
        `as_predicted` (attempts), `runs`.
    """
    lost = [int(summary["unexcused_lost_records"]) for summary in summaries]
    return {
        "scenario": experiment.scenario,
        "on": experiment.on,
        "profile": experiment.profile,
        "attempts": len(summaries),
        "with_loss": sum(count > 0 for count in lost),
        "lost_records": sum(lost),
        "outcomes": dict(Counter(str(summary["outcome"]) for summary in summaries)),
        "as_predicted": sum(bool(summary["as_predicted"]) for summary in summaries),
        "runs": [summary["run"] for summary in summaries],
    }
