"""`laststand defects search`: looks for every defect with random faults."""

import argparse
import shlex
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import exit_codes
from harness.cli.campaigns import new_folder
from harness.cli.options import (
    add_guided_option,
    add_worker_options,
    budget_s,
    parse_workers,
    positive_number,
    seed,
)
from harness.cli.output import print_json, show
from harness.cli.progress import StandardErrorProgress
from harness.cli.runs import open_store
from harness.errors import HarnessFailure, UsageError, usage_errors_of
from harness.seeds import check_seed
from results.layout import utc_stamp

if TYPE_CHECKING:
    from rich.console import RenderableType

    from harness.defects.search_plan import SearchPlan

RUNS = 500
CPU_S = 180.0


def add_search_options(parser: argparse.ArgumentParser) -> None:
    """Adds what `laststand defects search` takes besides the defects."""
    parser.add_argument(
        "--experiment",
        type=Path,
        metavar="FILE",
        help="run this experiment (default: built-in ones with random faults)",
    )
    parser.add_argument(
        "--budget",
        type=budget_s,
        metavar="TIME",
        help="start no more runs after this time: 2h, 30m, 90s (default: no limit)",
    )
    parser.add_argument(
        "--runs",
        type=positive_number,
        metavar="N",
        help=f"give up after N runs of a defect by an oracle (default: {RUNS})",
    )
    parser.add_argument(
        "--cpu",
        type=budget_s,
        metavar="TIME",
        help="or after this much processor time (default: 3m)",
    )
    parser.add_argument(
        "--first-seed", type=seed, metavar="N", help="start with this seed (default: 0)"
    )
    add_guided_option(parser)
    parser.add_argument(
        "--resume",
        metavar="CAMPAIGN",
        help="continue this search: its path, name, or a unique prefix",
    )
    add_worker_options(parser)


def search_defects(options: argparse.Namespace) -> int:
    """Runs a search, or the rest of one.

    Returns:
        0; 1 if something is found with the defect off; 2 if faults that rarely took effect may be why a defect was
        not found.
    """
    from harness.defects.search_plan import load_search, store_search

    workers = parse_workers(options)
    if options.resume is not None:
        directory, plan = _resumed(options, load_search)
    else:
        plan = _new_plan(options)
        store = open_store(options, to_write=True)
        if store.is_shared:
            raise UsageError(
                "a search for defects keeps its rows in a directory; give --results DIR"
            )
        directory = new_folder(store.root, "search")
        store_search(plan, directory)
    return _run(options, plan, directory, workers)


def _new_plan(options: argparse.Namespace) -> "SearchPlan":
    from harness.campaigns.guided.guidance import check_guidable
    from harness.defects.run_all import chosen_defects
    from harness.defects.search_plan import SearchPlan, arms_of
    from harness.runs import experiment_file as experiments
    from harness.runs.code_version import code_version
    from harness.runs.record import check_world

    experiment = None if options.experiment is None else experiments.load(options.experiment)
    if experiment is not None and not experiment.environment.is_simulated:
        raise UsageError(
            f"a search for defects runs in the simulation, but {options.experiment} is for {experiment.on}"
        )
    if experiment is not None and (experiment.disabled_rules or experiment.scenario):
        raise UsageError(f"{options.experiment} must have neither disabled_rules nor a scenario")
    first_seed, runs = options.first_seed or 0, options.runs or RUNS
    check_seed(first_seed + runs - 1)
    guided = (options.guided or 0) / 100
    if guided and experiment is not None:
        check_guidable(experiment)
    arms = arms_of(chosen_defects(options.defect), experiment, guided=bool(guided))
    for name, arm in arms.items():
        with usage_errors_of(options.experiment), usage_errors_of(name):
            check_world(arm.experiment, first_seed)
    return SearchPlan(
        arms=arms,
        runs=runs,
        cpu_s=options.cpu or CPU_S,
        first_seed=first_seed,
        started=utc_stamp(datetime.now(UTC)),
        code=code_version(),
        guided=guided,
    )


def _resumed(options: argparse.Namespace, load: Any) -> "tuple[Path, SearchPlan]":
    from harness.campaigns.listing import find_campaign
    from harness.runs.code_version import code_version

    directory = find_campaign(open_store(options).root, options.resume)
    plan: SearchPlan = load(directory)
    given = ("experiment", "runs", "cpu", "first_seed", "guided")
    names = [name for name in given if getattr(options, name) is not None]
    if names or options.defect:
        what = "--" + names[0].replace("_", "-") if names else "DEFECT"
        raise UsageError(
            f"{what} cannot be used with --resume: the search has a plan; leave it out"
        )
    if plan.code != code_version():
        raise UsageError(
            f"the code has changed since {directory} began (version {plan.code}, now {code_version()}), so its "
            "runs could not be compared; start a new search, or go back to that version"
        )
    return directory, plan


def _run(options: argparse.Namespace, plan: "SearchPlan", directory: Path, workers: Any) -> int:
    from harness.campaigns.crew import local_crew, spark_crew
    from harness.campaigns.files import SEARCH_PAGE
    from harness.defects.search import run_search
    from results.report.defect_search import build_search_report
    from results.tables import line

    command = f"laststand defects search --resume {shlex.quote(str(directory))}"

    def make_crew(remaining: int) -> Any:
        if workers.spark.enabled:
            return spark_crew(directory, workers.spark)
        return local_crew(directory, min(workers.jobs, remaining))

    def interrupted(result: Mapping[str, Any]) -> None:
        if options.json:
            print_json({**result, "interrupted": True, "resume": command})
        else:
            show(*_parts(result))
        print(f"laststand: to continue, run: {command}", file=sys.stderr)

    with StandardErrorProgress(quiet=options.quiet) as progress:
        try:
            result = run_search(
                plan, directory, make_crew, options.budget, progress, on_interrupt=interrupted
            )
        except HarnessFailure as failure:
            raise HarnessFailure(f"{failure}; to continue, run: {command}") from None
    page = build_search_report(directory / SEARCH_PAGE, result, command)
    if options.json:
        print_json({**result, "report": str(page)})
    else:
        show(*_parts(result), line(f"report: {page}"))
        if result["unfinished"]:
            show(line(f"to continue, run: {command}"))
    if result["errors"]:
        return exit_codes.FAILURE
    if result["wrong"]:
        return exit_codes.INVALID
    # What was found was found, whatever other faults did.
    is_unknown = result["unknown_reasons"] and result["found"] < len(result["defects"])
    return exit_codes.UNKNOWN if is_unknown else exit_codes.VALID


def _parts(result: Mapping[str, Any]) -> "Iterator[RenderableType]":
    from harness.defects.search import ORACLES
    from results.report.defect_search import cell_words, first_found, summary_sentences
    from results.tables import line, table

    yield table(
        ("id", "name", "profile", *ORACLES, "what was seen"),
        [
            (
                one["id"],
                one["name"],
                one["profile"],
                *(cell_words(one[oracle]) for oracle in ORACLES),
                (first_found(one) or {"what": ""})["what"],
            )
            for one in result["defects"]
        ],
        right=ORACLES,
        folding={"what was seen"},
    )
    yield line("")
    yield line(
        "runs until each oracle found the defect; > N: not found in N runs; -: it cannot see it; …: ended before"
    )
    for sentence in summary_sentences(result):
        yield line(sentence)
    for one in result["wrong"]:
        yield line(f"  with the defect off: {one['what']}: {one['command']}")
    for one in result["errors"]:
        yield line(f"  {one['error']}: {one['command']}")
