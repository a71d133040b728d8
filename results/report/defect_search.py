"""The page of a search for defects: which oracle found which defect, and after how many runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from results.report.build import environment, write_text

STATUS_WORDS = {
    "found": "found",
    "limit": "not found within the limits",
    "unfinished": "the search ended before its limits",
    "ended": "the other oracle of the same runs found it first",
}


def cell_words(oracle: Mapping[str, Any] | None) -> str:
    """Returns what a table states about one defect and one oracle.

    Args:
        oracle: The entry of the result; None if this oracle cannot see the defect.
    """
    if oracle is None:
        return "-"
    if oracle["status"] == "found":
        return f"{oracle['runs']}"
    return f"> {oracle['runs']}" + ("" if oracle["status"] == "limit" else " …")


def first_found(defect: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Returns the entry of an oracle that found a defect, clients before the others; None if none found it."""
    for oracle in ("clients", "stuck", "monitor"):
        entry: Mapping[str, Any] | None = defect[oracle]
        if entry and entry["what"]:
            return entry
    return None


def summary_sentences(result: Mapping[str, Any]) -> list[str]:
    """Returns what a search found, in sentences."""
    number = len(result["defects"])
    sentences = [
        f"{result['found']} of {number} defects found in {result['runs']} runs; of the {result['harmful']} that "
        f"do clients harm, {result['found_by_clients']} by what clients saw{_because_stuck(result)}"
    ]
    # Searches of earlier versions were not guided.
    if share := result.get("guided", 0.0):
        sentences.append(
            f"{share:.0%} of the runs of each arm were mutations of runs that reached something new"
        )
    if result["unfinished"]:
        sentences.append(f"{result['unfinished']} searches had not reached their limits")
    # Searches of earlier versions have no reasons.
    sentences += [f"unknown: {reason}" for reason in result.get("unknown_reasons", ())]
    if result["wrong"]:
        sentences.append(f"findings with the defect off: {len(result['wrong'])}")
    if result["errors"]:
        sentences.append(f"runs that the harness could not finish: {len(result['errors'])}")
    return sentences


def _because_stuck(result: Mapping[str, Any]) -> str:
    # Searches of earlier versions counted both together.
    if "found_by_stuck" not in result:
        return ""
    return f" and {result['found_by_stuck']} only because they were stuck"


def build_search_report(path: Path, result: Mapping[str, Any], command: str) -> Path:
    """Writes the page; returns its path.

    Args:
        path: The HTML file to write.
        result: As `harness.defects.search.result_of` returns it.
        command: The command that continues the search.
    """
    is_wrong = bool(result["wrong"] or result["errors"])
    is_whole = not result["unfinished"] and result["found"] == len(result["defects"])
    text = (
        environment()
        .get_template("search.html")
        .render(
            result=result,
            command=command,
            sentences=summary_sentences(result),
            banner="invalid" if is_wrong else "valid" if is_whole else "unknown",
            words=cell_words,
            first_found=first_found,
            meanings=STATUS_WORDS,
        )
    )
    write_text(path, text)
    return path
