"""`laststand shrink`: finds the smallest run that still shows the finding of a stored run."""

import argparse
import shlex
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import exit_codes
from harness.cli.options import (
    Subcommands,
    add_command,
    add_hosts_option,
    add_judging_options,
    add_run_argument,
    budget_s,
    jobs_of,
    positive_number,
)
from harness.cli.output import print_json, show
from harness.cli.progress import StandardErrorProgress
from harness.cli.repeating import repeat_elsewhere, repeat_parts
from harness.cli.runs import open_store, spark_for
from harness.errors import UsageError
from results.layout import RunFiles
from results.store import RunStore

if TYPE_CHECKING:
    from rich.console import RenderableType

    from harness.campaigns.shrinking.shrunk import Limits, Shrunk

WORLDS = ("docker", "local", "ssh")
ATTEMPTS = 3


def add_parser(commands: Subcommands) -> None:
    """Adds the command."""
    parser = add_command(
        commands, "shrink", shrink, "find the smallest run that still shows the finding of a run"
    )
    add_run_argument(parser)
    parser.add_argument(
        "--finding",
        default="",
        metavar="SIGNATURE",
        help="keep this finding, by its signature or the beginning of it (default: the most severe one)",
    )
    parser.add_argument(
        "--jobs",
        type=positive_number,
        metavar="N",
        help="run N trials at once; changes no result (default: all cores)",
    )
    parser.add_argument(
        "--max-runs",
        type=positive_number,
        metavar="N",
        help="end with the smallest run so far when N trials were needed (default: no limit)",
    )
    parser.add_argument(
        "--budget",
        type=budget_s,
        metavar="TIME",
        help="end with the smallest run so far after this time: 10m, 90s; the result then depends on the "
        "machine (default: no limit)",
    )
    parser.add_argument(
        "--on",
        metavar="WORLD",
        help="also run the result in local, docker or ssh, and report how often it shows the finding",
    )
    add_hosts_option(parser, "read the hosts for --on ssh from this TOML file")
    parser.add_argument(
        "--attempts",
        type=positive_number,
        metavar="N",
        help=f"with --on, run the result N times (default: {ATTEMPTS})",
    )
    add_judging_options(parser)


def shrink(options: argparse.Namespace) -> int:
    """Shrinks a stored run, stores the result as a run of its own, and prints the differences and the cause."""
    from harness.campaigns.shrinking.shrunk import Limits, load_shrunk, store_shrunk
    from harness.campaigns.shrinking.shrunk import shrink as search
    from harness.campaigns.shrinking.source import load_source
    from harness.environments.registry import DEFAULT
    from harness.runs.experiment_file import check_hosts_used

    if options.on is not None and options.on not in WORLDS:
        raise UsageError(
            f"--on is {options.on!r}; runs are shrunk in the simulation, and --on names where the result runs "
            f"as well: {', '.join(WORLDS)}"
        )
    if options.attempts is not None and options.on is None:
        raise UsageError(
            "--attempts says how often the result runs in another world; name it with --on"
        )
    check_hosts_used(options.hosts, options.on or DEFAULT)
    options.attempts = options.attempts or ATTEMPTS
    store = open_store(options, to_write=True)
    spark_for(options, store)  # refused before the search, not after it
    original = store.find(options.run)
    source = load_source(original, store.run_id(original), signature=options.finding)
    limits = Limits(
        jobs=jobs_of(options),
        runs_max=options.max_runs,
        budget_s=options.budget,
    )
    with StandardErrorProgress(quiet=options.quiet) as progress:
        progress.message(f"shrinking {source.run}: {source.finding['title']}")
        shrunk = search(source, limits, progress)
        directory = store_shrunk(shrunk, store, now=datetime.now(UTC))
        store.publish(directory)
    data = load_shrunk(directory)
    was_interrupted, elsewhere = shrunk.was_interrupted, None
    try:
        elsewhere = _elsewhere(options, store, directory, shrunk, limits)
    except KeyboardInterrupt:
        was_interrupted = True  # the result of the search is stored, so it is shown
    if options.json:
        confirmed = {} if elsewhere is None else {"elsewhere": elsewhere[0]}
        files = RunFiles(directory)
        print_json(
            {
                **{key: value for key, value in data.items() if key != "schema"},  # the file's
                **confirmed,
                "run": store.run_id(directory),
                "directory": str(directory),
                "experiment": str(files.experiment),
                "seed": shrunk.best.seed,
                "report": str(files.report),
            }
        )
    else:
        found = (
            [] if elsewhere is None else [*_steadied_parts(elsewhere[0]), *repeat_parts(*elsewhere)]
        )
        show(*shrunk_parts(data, directory, shrunk.best.seed), *found)
    if was_interrupted:
        raise KeyboardInterrupt
    return exit_codes.INVALID


def shrunk_parts(data: dict[str, Any], directory: Path, seed: int) -> "list[RenderableType]":
    """Returns how much smaller a run became, and why it fails."""
    from results.tables import line, table

    names = data["before"]
    rows = [(name.replace("_", " "), str(names[name]), str(data["after"][name])) for name in names]
    files = RunFiles(directory)
    ended = f", ended early by {data['ended']}" if data["ended"] else ""
    return [
        table(("", "before", "after"), rows, right={"before", "after"}),
        line(""),
        line(f"{data['title']} (signature {data['signature']}), {data['runs']} runs needed{ended}"),
        line(data["cause"]),
        line(""),
        line(f"report: {files.report}"),
        line(f"again: laststand run {shlex.quote(str(files.experiment))} --seed {seed}"),
    ]


def _elsewhere(
    options: argparse.Namespace,
    store: RunStore,
    directory: Path,
    shrunk: "Shrunk",
    limits: "Limits",
) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
    """Runs the result where `--on` names, if it does, and returns what that showed.

    There the faults wait for events where the simulation allows it, because time is real.
    """
    from harness.campaigns.shrinking.shrunk import steady
    from harness.campaigns.shrinking.steady import differences
    from harness.runs.replay import load_replay

    if options.on is None or shrunk.was_interrupted:
        return None
    options.system = None
    experiment, seed, _ = load_replay(directory)
    with StandardErrorProgress(quiet=options.quiet) as progress:
        progress.message("making the result independent of exact times")
        trial = steady(shrunk, limits, progress)
    experiment = replace(trial.experiment, name=experiment.name)
    data, summaries = repeat_elsewhere(
        options, store, directory, experiment, seed, finding=shrunk.source.finding["parts"]["what"]
    )
    return {**data, "changed": differences(shrunk.best, trial)}, summaries


def _steadied_parts(data: dict[str, Any]) -> "list[RenderableType]":
    """Returns what was changed for a world where time is real."""
    from results.tables import line

    return [
        line(""),
        *(line(f"changed for {data['on']}: {sentence}") for sentence in data["changed"]),
    ]
