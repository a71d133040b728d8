"""`laststand demo`: shows the bug, its fix, and a small comparison."""

import argparse

from harness import exit_codes
from harness.cli.campaigns import BUILT_IN_EXPERIMENT, campaign_parts, new_folder
from harness.cli.options import (
    Subcommands,
    add_command,
    add_worker_options,
    parse_workers,
    positive_number,
)
from harness.cli.output import print_json, show
from harness.cli.progress import StandardErrorProgress
from harness.cli.runs import open_store, run_parts
from harness.errors import UsageError
from results.layout import RunFiles

PROFILES = ("kafka-4.0", "kafka-4.1")


def add_parser(commands: Subcommands) -> None:
    """Adds the command."""
    parser = add_command(commands, "demo", demo, "show the bug, its fix, and a small comparison")
    parser.add_argument(
        "--seeds",
        type=positive_number,
        default=20,
        metavar="N",
        help="compare this many seeds (default: %(default)s)",
    )
    add_worker_options(parser)


def demo(options: argparse.Namespace) -> int:
    """Shows the bug with ELR off, its absence with ELR on, and a small comparison."""
    from harness.campaigns.compare import compare_plan, run_campaign
    from harness.campaigns.files import COMPARE_PAGE
    from harness.campaigns.plan import store_plan
    from harness.runs import experiment_file as experiments
    from harness.runs.execute import judge, record
    from harness.runs.scripted import scenario_experiment
    from harness.scenarios import find_scenario
    from results.report.compare import build_compare_report
    from results.tables import line

    store = open_store(options, to_write=True)
    if store.is_shared:
        raise UsageError("the demonstration stores its runs in a directory; --results names a URI")
    workers = parse_workers(options)
    scenario = find_scenario("last-replica-standing")
    plan = compare_plan(
        experiments.load(BUILT_IN_EXPERIMENT),
        vary=f"profile={','.join(PROFILES)}",
        seeds=options.seeds,
        first_seed=0,
    )
    with StandardErrorProgress(quiet=options.quiet) as progress:
        directories = [
            record(scenario_experiment(scenario, profile), 1, store, progress)
            for profile in PROFILES
        ]
        summaries = judge(directories, store, workers.spark, progress)
        campaign = new_folder(store.root, "demo-compare")
        store_plan(plan, campaign)
        result = run_campaign(plan, campaign, workers, progress)
    compare_report = build_compare_report(campaign / COMPARE_PAGE, result)
    reports = [str(RunFiles(directory).report) for directory in directories]
    as_predicted = all(summary["as_predicted"] for summary in summaries)
    if options.json:
        print_json(
            {
                "runs": summaries,
                "compare": result,
                "reports": [*reports, str(compare_report)],
                "as_predicted": as_predicted,
            }
        )
    else:
        for directory, summary in zip(directories, summaries, strict=True):
            show(*run_parts(options, directory, summary), line(""))
        show(
            *campaign_parts(result),
            line(""),
            line(
                "Three reports to open in a browser: the comparison, the run with ELR on, and the"
            ),
            line("run with ELR off, in which records were lost. Start with the last one:"),
            *(line(str(path)) for path in (compare_report, reports[1], reports[0])),
        )
    return exit_codes.VALID if as_predicted else exit_codes.INVALID
