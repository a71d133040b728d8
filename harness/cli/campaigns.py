"""What the commands for many runs share: starting and continuing a campaign, its table, its exit code."""

import argparse
import shlex
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import exit_codes
from harness.cli.options import parse_workers
from harness.cli.output import print_json, show
from harness.cli.progress import StandardErrorProgress
from harness.cli.runs import open_store
from harness.errors import HarnessFailure, UsageError, usage_errors_of
from harness.seeds import check_seed
from results.layout import utc_stamp
from results.store import RunStore

if TYPE_CHECKING:
    from rich.console import RenderableType

    from harness.campaigns.plan import CampaignPlan
    from harness.runs.experiment import Experiment

BUILT_IN_EXPERIMENT = Path(__file__).parents[1] / "experiments" / "elr-compare.toml"
ATTENTION_SHOWN_MAX = 3


def start_or_resume(
    options: argparse.Namespace,
    kind: str,
    load_experiment: "Callable[[], Experiment]",
    make_plan: "Callable[[Experiment, dict[str, int], str], CampaignPlan]",
    *,
    default_seeds: int,
) -> int:
    """Runs a new campaign, or the rest of an old one (`--resume`); prints its result and returns the exit code.

    Args:
        options: The command line.
        kind: "swarm" or "compare".
        load_experiment: Reads the experiment that the command line names.
        make_plan: Makes a plan from an experiment, the options `seeds`, `first_seed` and `keep_failing`, and
            what `--vary` takes.
        default_seeds: How many seeds run without `--seeds`.
    """
    from harness.campaigns.listing import find_campaign
    from harness.campaigns.plan import KEEP_FAILING, load_plan, store_plan
    from harness.campaigns.remote import fetch_campaign

    workers = parse_workers(options)
    if options.resume is not None:
        store = open_store(options)
        directory = find_campaign(store.root, options.resume)
        fetch_campaign(store, directory)
        plan = load_plan(directory)
        _check_resumable(options, kind, plan, directory)
        if _names_experiment(options):
            options.guided = round(100 * plan.guided)
            given = make_plan(load_experiment(), _numbers_of(plan), plan.vary)
            if given.arms != plan.arms:
                raise UsageError(
                    f"the campaign {directory} runs another experiment than the one given; leave out EXPERIMENT "
                    "and the options that change it"
                )
        _check_arms(plan, options.experiment)
        return _run(options, plan, directory, workers, store)
    numbers = {
        "seeds": default_seeds if options.seeds is None else options.seeds,
        "first_seed": options.first_seed or 0,
        "keep_failing": KEEP_FAILING if options.keep_failing is None else options.keep_failing,
    }
    experiment = load_experiment()
    check_seed(numbers["first_seed"] + numbers["seeds"] - 1)
    plan = make_plan(experiment, numbers, getattr(options, "vary", None) or "")
    _check_arms(plan, options.experiment)
    store = open_store(options, to_write=True)
    directory = new_folder(store.root, kind)
    store_plan(plan, directory)
    return _run(options, plan, directory, workers, store)


def _check_arms(plan: "CampaignPlan", file: Path | None) -> None:
    """Raises `UsageError`, which names the file, if an arm cannot run here; nothing was started or stored."""
    from harness.runs.record import check_world

    for name, arm in plan.arms.items():
        with usage_errors_of(file), usage_errors_of(name if plan.vary else None):
            check_world(arm, plan.first_seed, plan.seeds)


def _numbers_of(plan: "CampaignPlan") -> dict[str, int]:
    return {name: getattr(plan, name) for name in ("seeds", "first_seed", "keep_failing")}


def _names_experiment(options: argparse.Namespace) -> bool:
    names = ("experiment", "on", "hosts", "profile", "system", "space")
    return any(getattr(options, name, None) is not None for name in names)


def _check_resumable(
    options: argparse.Namespace, kind: str, plan: "CampaignPlan", directory: Path
) -> None:
    """Refuses to continue with other options or other code than the campaign began with."""
    from harness.runs.code_version import code_version

    if plan.kind != kind:
        raise UsageError(
            f"{directory} is a campaign of `laststand {plan.kind}`; use "
            f"`laststand {plan.kind} --resume {shlex.quote(str(directory))}`"
        )
    planned = {**_numbers_of(plan), "vary": plan.vary}
    for name, value in planned.items():
        wanted = getattr(options, name, None)
        if wanted is not None and wanted != value:
            option = "--" + name.replace("_", "-")
            raise UsageError(
                f"{option} is {wanted}, but the campaign {directory} was started with {value}; leave it out"
            )
    guided = getattr(options, "guided", None)
    if guided is not None and guided != round(100 * plan.guided):
        raise UsageError(
            f"--guided is {guided}, but the campaign {directory} was started with {100 * plan.guided:.0f}; "
            "leave it out"
        )
    if getattr(options, "coverage", False) and not plan.coverage:
        raise UsageError(
            f"the campaign {directory} was started without --coverage, and its first runs have none; leave it out"
        )
    code = code_version()
    if plan.code != code:
        raise UsageError(
            f"the code has changed since the campaign {directory} began (version {plan.code}, now {code}), so its "
            "runs could not be compared; start a new campaign, or go back to that version"
        )


def resume_command(kind: str, directory: Path, store: RunStore) -> str:
    """Returns the command line that continues a campaign."""
    if store.is_shared:
        where = f"--results {shlex.quote(store.place)} --resume {shlex.quote(directory.name)}"
    else:
        where = f"--resume {shlex.quote(str(directory))}"
    return f"laststand {kind} {where}"


def _run(
    options: argparse.Namespace,
    plan: "CampaignPlan",
    directory: Path,
    workers: Any,
    store: RunStore,
) -> int:
    from harness.campaigns.compare import run_campaign
    from harness.campaigns.files import COMPARE_PAGE
    from harness.campaigns.remote import copied
    from results.report.compare import build_compare_report
    from results.tables import line

    command = resume_command(plan.kind, directory, store)

    def interrupted(result: dict[str, Any]) -> None:
        done = sum(arm["runs"] for arm in result["arms"])
        if options.json:
            print_json({**result, "interrupted": True, "resume": command})
        else:
            show(*campaign_parts(result), line(f"{done} of {plan.total} runs were done"))
        print(f"laststand: to continue, run: {command}", file=sys.stderr)

    with (
        StandardErrorProgress(quiet=options.quiet) as progress,
        copied(store, directory, progress.message, command),
    ):
        try:
            result = run_campaign(plan, directory, workers, progress, on_interrupt=interrupted)
        except HarnessFailure as failure:
            raise HarnessFailure(f"{failure}; to continue, run: {command}") from None
        path = build_compare_report(directory / COMPARE_PAGE, result)
        if options.json:
            errors = sum(arm["errors"] for arm in result["arms"])
            failed = f"{errors} of the runs ended in an error" if errors else None
            print_json({**result, "report": str(path), "error": failed})
        else:
            stored = _stored_parts(result, directory)
            show(*campaign_parts(result), *stored, line(f"report: {path}"))
    return _exit_code(result, is_comparison=bool(plan.vary))


def _exit_code(result: Mapping[str, Any], *, is_comparison: bool) -> int:
    """A completed comparison is valid whatever it found; for a swarm see `harness.campaigns.effects`."""
    arms = result["arms"]
    if any(arm["errors"] for arm in arms):
        return exit_codes.FAILURE
    if is_comparison:
        return exit_codes.VALID
    if any(arm["invalid"] for arm in arms):
        return exit_codes.INVALID
    is_unknown = any(arm["unknown_reasons"] for arm in arms)
    return exit_codes.UNKNOWN if is_unknown else exit_codes.VALID


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
    parts += [line(sentence) for sentence in comparison_sentences(result)]
    parts += [line(sentence) for sentence in guided_sentences(result)]
    for arm in result["arms"]:
        parts += [line(f"unknown: {arm['name']}: {reason}") for reason in arm["unknown_reasons"]]
        if "unknown_command" in arm:
            parts.append(line(f"  {arm['unknown_command']}"))
    attention = result.get("attention", ())
    if attention:
        number = result.get("failing", len(attention))
        parts += [line(""), line(f"runs to investigate: {number}, for example")]
        parts += [line(f"  {run['command']}") for run in attention[:ATTENTION_SHOWN_MAX]]
    return parts


def guided_sentences(result: Mapping[str, Any]) -> list[str]:
    """Returns what a guided swarm reached; nothing for other campaigns."""
    guided = result.get("guided")
    if guided is None:
        return []
    drawn, mutants, chosen = guided["drawn"], guided["mutants"], guided["weighted"]
    margins = ", ".join(f"{name} {margin}" for name, margin in guided["margins"].items())
    smallest = [f"smallest margins: {margins}"] if margins else []
    if not guided["share"]:
        features, new, runs = guided["features"], drawn["new"], drawn["runs"]
        return [
            f"coverage: {features} features; {new} of {runs} runs reached something new",
            *smallest,
        ]
    return [
        f"coverage: {guided['features']} features; {drawn['new']} of {drawn['runs']} drawn runs were new "
        f"({chosen['new']} of {chosen['runs']} with learned weights), and {mutants['new']} of {mutants['runs']} "
        "mutated runs",
        *smallest,
    ]


def comparison_sentences(result: Mapping[str, Any]) -> list[str]:
    """Returns what the tests of a comparison found; nothing for a swarm."""
    if result.get("mcnemar_p") is None:
        return []
    schedules = "" if result.get("same_schedules", True) else ", but not the same schedules"
    heading = f"McNemar's exact test, same seeds in every arm{schedules}:"
    comparisons = result.get("comparisons", ())
    if len(comparisons) < 2:
        return [f"{heading} p = {result['mcnemar_p']:.3g}"]
    return [
        heading,
        *(
            f"  {one['arms'][1]} against {one['arms'][0]}: p = {one['mcnemar_p']:.3g}, "
            f"{one['adjusted_p']:.3g} adjusted for {len(comparisons)} tests"
            for one in comparisons
        ),
    ]


def _stored_parts(result: Mapping[str, Any], directory: Path) -> "list[RenderableType]":
    """Returns where the failing runs are that were stored whole."""
    from results.tables import line

    stored = [run for run in result["attention"] if run["run"]]
    if not stored:
        return []
    where = shlex.quote(str(directory / "runs"))
    parts: list[RenderableType] = [
        line(f"stored with their reports: {len(stored)} (laststand list --results {where})")
    ]
    parts += [
        line(f"  laststand replay {shlex.quote(str(directory / run['run']))}")
        for run in stored[:ATTENTION_SHOWN_MAX]
    ]
    return parts


def new_folder(root: Path, name: str) -> Path:
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
