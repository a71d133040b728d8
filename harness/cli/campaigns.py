"""What the commands for many runs share: the folder, the table of arms, the exit code."""

import argparse
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import exit_codes
from harness.cli.options import parse_spark_options
from harness.cli.output import print_json, show
from harness.cli.progress import StandardErrorProgress
from harness.cli.runs import open_store
from harness.errors import UsageError
from harness.seeds import check_seed
from results.layout import utc_stamp

if TYPE_CHECKING:
    from rich.console import RenderableType

    from harness.runs.experiment import Experiment

BUILT_IN_EXPERIMENT = Path(__file__).parents[1] / "experiments" / "elr-compare.toml"
ATTENTION_SHOWN_MAX = 3


def run_campaign(options: argparse.Namespace, experiment: "Experiment", *, vary: str | None) -> int:
    """Runs a comparison, or with `vary` None a swarm, prints its result and returns the exit code."""
    from harness.campaigns import compare
    from harness.runs.record import check_world
    from results.report.compare import build_compare_report
    from results.tables import line

    check_seed(options.first_seed + options.seeds - 1)
    check_world(experiment, options.first_seed)
    store = open_store(options, to_write=True)
    directory = _new_folder(store.root, "swarm" if vary is None else "compare")
    with StandardErrorProgress(quiet=options.quiet) as progress:
        arguments: dict[str, Any] = {
            "seeds": options.seeds,
            "first_seed": options.first_seed,
            "spark": parse_spark_options(options),
            "progress": progress,
            "directory": directory,
        }
        try:
            if vary is None:
                result = compare.swarm(experiment, **arguments)
            else:
                result = compare.compare(experiment, vary=vary, **arguments)
        except UsageError:
            directory.rmdir()
            raise
    path = build_compare_report(directory / "compare.html", result)
    if options.json:
        print_json(result)
    else:
        show(*campaign_parts(result), line(f"report: {path}"))
    return _exit_code(result, is_comparison=vary is not None)


def _exit_code(result: Mapping[str, Any], *, is_comparison: bool) -> int:
    """A completed comparison is valid whatever it found; a swarm has the verdict of its worst run."""
    arms = result["arms"]
    if any(arm["errors"] for arm in arms):
        return exit_codes.FAILURE
    if is_comparison:
        return exit_codes.VALID
    if any(arm["invalid"] for arm in arms):
        return exit_codes.INVALID
    return exit_codes.UNKNOWN if any(arm["unknown"] for arm in arms) else exit_codes.VALID


def campaign_parts(result: Mapping[str, Any]) -> "list[RenderableType]":
    """Returns the result of a campaign as a table and lines."""
    from results.tables import line, table

    names = ("runs", "with loss", "95 %", "records", "unavail. ms", "unknown", "errors")
    rows = []
    for arm in result["arms"]:
        low, high = arm["loss_rate_interval"]
        median_ms = arm["unavailable_ms_median"]
        rows.append(
            (
                str(arm["name"]),
                str(arm["runs"]),
                str(arm["runs_with_unexcused_loss"]),
                f"{low:.1%}..{high:.1%}",
                str(arm["unexcused_lost_records"]),
                "-" if median_ms is None else f"{median_ms:.0f}",
                str(arm["unknown"]),
                str(arm["errors"]),
            )
        )
    parts: list[RenderableType] = [table(("arm", *names), rows, right=names)]
    if result.get("mcnemar_p") is not None:
        parts.append(
            line(f"McNemar's exact test, same seeds in every arm: p = {result['mcnemar_p']:.3g}")
        )
    attention = result.get("attention", ())
    if attention:
        parts += [line(""), line(f"runs to investigate: {len(attention)}, for example")]
        parts += [line(f"  {run['command']}") for run in attention[:ATTENTION_SHOWN_MAX]]
    return parts


def _new_folder(root: Path, name: str) -> Path:
    """Makes a folder for a campaign that no other campaign has."""
    stamp = utc_stamp(datetime.now(UTC))
    for repetition in count(1):
        folder = root / (f"{name}-{stamp}" if repetition == 1 else f"{name}-{stamp}-{repetition}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise AssertionError("numbers do not end")
