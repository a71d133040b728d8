"""`laststand nightly`: runs a plan of jobs until a budget is used up."""

import argparse
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import exit_codes
from harness.cli.campaigns import resume_command
from harness.cli.options import (
    Subcommands,
    add_command,
    add_resume_options,
    add_worker_options,
    budget_s,
    parse_workers,
    positive_number,
)
from harness.cli.output import print_json, show
from harness.cli.progress import StandardErrorProgress
from harness.cli.runs import open_store
from harness.errors import HarnessFailure, UsageError, usage_errors_of
from results.layout import utc_stamp
from results.store import RunStore

if TYPE_CHECKING:
    from rich.console import RenderableType

    from harness.campaigns.known_failures import KnownFailure
    from harness.campaigns.nightly import Budget
    from harness.campaigns.nights import Night

KEEP_ALIKE = 5
"""Runs that fail alike show the same; a few of them are stored."""
TABLES_FOLDER = "campaign-tables"


def add_parser(commands: Subcommands) -> None:
    """Adds the command."""
    parser = add_command(
        commands, "nightly", nightly, "run a plan of jobs until a budget is used up"
    )
    parser.add_argument(
        "plan",
        type=Path,
        nargs="?",
        metavar="PLAN",
        help="the plan file (TOML) (default: a built-in one, see --print-plan)",
    )
    limits = parser.add_mutually_exclusive_group()
    limits.add_argument(
        "--budget", type=budget_s, metavar="TIME", help="end after this time: 2h, 30m, 1h30m, 90s"
    )
    limits.add_argument(
        "--runs", type=positive_number, metavar="N", help="end after this many runs"
    )
    parser.add_argument(
        "--print-plan",
        action="store_true",
        help="print the plan and exit; without PLAN the built-in one",
    )
    parser.add_argument(
        "--known-failures",
        type=Path,
        metavar="FILE",
        help="do not fail because of the findings in FILE (TOML, see docs/how-to/nightly.md)",
    )
    parser.add_argument(
        "--resolved-after",
        type=positive_number,
        metavar="N",
        help="report a finding as resolved when it has not occurred for N nights (default: 3)",
    )
    parser.add_argument(
        "--tables",
        metavar="ROOT",
        help="keep the tables of all nights in ROOT, a path or a URI (default: campaign-tables in --results)",
    )
    add_resume_options(
        parser, f"store the first N of the runs that fail alike (default: {KEEP_ALIKE})"
    )
    add_worker_options(parser)


def nightly(options: argparse.Namespace) -> int:
    """Runs a night, or the rest of one."""
    from harness.campaigns.nightly import Budget
    from harness.campaigns.nightly_plan import DEFAULT_PLAN, load_nightly, read_plan_text

    if options.print_plan:
        load_nightly(options.plan)
        text = read_plan_text(options.plan or DEFAULT_PLAN)
        if options.json:
            print_json({"plan": text})
        else:
            print(text.rstrip())
        return exit_codes.VALID
    known = _known(options)
    if options.resume is not None:
        store = open_store(options)
        night, directory = _resumed(options, store)
        return _run(options, night, directory, Budget(night.budget_s), known, store)
    if options.budget is None and options.runs is None:
        raise UsageError("a night needs an end: give --budget, for example 2h, or --runs")
    budget = Budget(options.budget)
    parse_workers(options)
    night, directory, store = _new(options)
    return _run(options, night, directory, budget, known, store)


def _new(options: argparse.Namespace) -> "tuple[Night, Path, RunStore]":
    """Plans a new night and stores its plan."""
    from harness.campaigns.night_tables import NightTables
    from harness.campaigns.nightly_plan import load_nightly
    from harness.campaigns.nights import (
        EARLIER_NIGHTS,
        Night,
        new_night_folder,
        night_folders,
        store_night,
        with_earlier_findings,
    )
    from harness.campaigns.remote import fetch_rows
    from harness.runs.code_version import code_version
    from harness.runs.record import check_world

    jobs = load_nightly(options.plan)
    for job in jobs:
        with usage_errors_of(options.plan), usage_errors_of(f"job {job.name!r}"):
            check_world(job.experiment, 0)
    # Not before: a plan that is refused leaves nothing.
    store = open_store(options, to_write=True)
    root = store.root
    now = datetime.now(UTC)
    # Stores that share tables must not write the same night: the second would replace the first.
    taken = NightTables(options.tables or tables_root(store)).begun()
    name, directory = new_night_folder(root, now.date().isoformat(), taken)
    night = Night(
        night=name,
        started=utc_stamp(now),
        code=code_version(),
        jobs=jobs,
        budget_s=options.budget,
        runs=options.runs,
        keep_failing=KEEP_ALIKE if options.keep_failing is None else options.keep_failing,
        expected_s={},
    )
    fetch_rows(store, night_folders(root)[-EARLIER_NIGHTS:])
    night = with_earlier_findings(night, root)
    store_night(night, directory)
    return night, directory, store


def _resumed(options: argparse.Namespace, store: RunStore) -> "tuple[Night, Path]":
    """Returns the night to continue.

    Raises:
        UsageError: Its code or its options are other ones.
    """
    from harness.campaigns.listing import find_campaign
    from harness.campaigns.nights import load_night
    from harness.campaigns.remote import fetch_campaign
    from harness.runs.code_version import code_version

    directory = find_campaign(store.root, options.resume)
    fetch_campaign(store, directory)
    night = load_night(directory)
    if options.plan is not None:
        raise UsageError(f"the night {directory} has its plan; leave out {options.plan}")
    planned = {"budget": night.budget_s, "runs": night.runs, "keep_failing": night.keep_failing}
    for name, value in planned.items():
        given = getattr(options, name)
        if given is not None and given != value:
            option = "--" + name.replace("_", "-")
            raise UsageError(
                f"{option} is not that with which the night {directory} was started; leave it out"
            )
    code = code_version()
    if night.code != code:
        raise UsageError(
            f"the code has changed since the night {directory} began (version {night.code}, now {code}); start a "
            "new night, or go back to that version"
        )
    return night, directory


def _run(
    options: argparse.Namespace,
    night: "Night",
    directory: Path,
    budget: "Budget",
    known: "Mapping[str, KnownFailure]",
    store: RunStore,
) -> int:
    from harness.campaigns.files import NIGHT_PAGE
    from harness.campaigns.night_outputs import append_step_summary, close_night
    from harness.campaigns.nightly import run_night
    from harness.campaigns.remote import copied
    from harness.campaigns.triage import RESOLVED_AFTER_NIGHTS
    from results.report.night_text import night_parts
    from results.tables import line

    root = options.tables or tables_root(store)
    command = resume_command("nightly", directory, store)

    def interrupted(result: dict[str, Any]) -> None:
        if options.json:
            print_json({**_without_schema(result), "interrupted": True, "resume": command})
        else:
            show(job_table(result))
        print(f"laststand: to continue, run: {command}", file=sys.stderr)

    has_real = any(not job.is_simulated for job in night.jobs)
    workers = parse_workers(options, keep_free=1 if has_real else 0)
    with (
        StandardErrorProgress(quiet=options.quiet) as progress,
        copied(store, directory, progress.message, command),
    ):
        try:
            result = run_night(
                night, directory, workers, progress, budget, on_interrupt=interrupted
            )
        except HarnessFailure as failure:
            raise HarnessFailure(f"{failure}; to continue, run: {command}") from None
        closed = close_night(
            directory,
            root=root,
            known=known,
            spark=workers.spark,
            resolved_after=options.resolved_after or RESOLVED_AFTER_NIGHTS,
        )
        closed = _with_shrunk(closed, directory, workers.jobs, budget, progress)
        append_step_summary(directory)
        if options.json:
            is_failure = closed["exit_code"] == exit_codes.FAILURE
            failed = closed["sentence"] if is_failure else None
            print_json({**_without_schema(closed), "directory": str(directory), "error": failed})
        else:
            page = directory / NIGHT_PAGE
            show(job_table(result), line(""), *night_parts(closed), line(f"page: {page}"))
    code: int = closed["exit_code"]
    return code


def _without_schema(result: dict[str, Any]) -> dict[str, Any]:
    """Returns a result without the version of the file that it is stored in; the envelope has its own."""
    return {key: value for key, value in result.items() if key != "schema"}


def _with_shrunk(
    closed: dict[str, Any],
    directory: Path,
    jobs: int,
    budget: "Budget",
    progress: StandardErrorProgress,
) -> dict[str, Any]:
    """Shrinks the new findings of a closed night, and returns its result with their runs."""
    from harness.campaigns.night_outputs import link_shrunk_runs
    from harness.campaigns.shrinking.night import shrink_new_findings

    if not budget.shrink_s:
        return closed
    try:
        shrink_new_findings(
            closed, directory, jobs=jobs, budget_s=budget.shrink_s, progress=progress
        )
    finally:
        closed = link_shrunk_runs(directory, closed)
    return closed


def tables_root(store: RunStore) -> str:
    """Returns where the campaign tables of a store are, unless `--tables` names another place."""
    if not store.is_shared:
        return str(store.root / TABLES_FOLDER)
    from harness.history.filesystems import child

    return child(store.place, TABLES_FOLDER)


def _known(options: argparse.Namespace) -> "dict[str, KnownFailure]":
    from harness.campaigns.known_failures import load_known_failures

    return {} if options.known_failures is None else load_known_failures(options.known_failures)


def job_table(result: Mapping[str, Any]) -> "RenderableType":
    """Returns the numbers of the jobs of a night as a table."""
    from results.tables import table

    names = ("runs", "valid", "invalid", "unknown", "errors", "s/run")
    rows = [
        (
            str(job["name"]),
            str(job["kind"]),
            str(job["world"]),
            *(str(job[name]) for name in names[:-1]),
            f"{job['wall_s'] / max(job['runs'] - job['errors'], 1):.1f}",
        )
        for job in result["jobs"]
    ]
    return table(("job", "kind", "world", *names), rows, right=names)
