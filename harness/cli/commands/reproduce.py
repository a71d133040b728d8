"""`laststand reproduce`: runs a scripted scenario once or several times."""

import argparse
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness import exit_codes
from harness.cli.options import (
    Subcommands,
    add_command,
    add_profile_option,
    add_single_run_options,
    add_system_option,
    add_world_options,
    positive_number,
    system_keys,
)
from harness.cli.output import print_json, show
from harness.cli.progress import StandardErrorProgress
from harness.cli.runs import open_store, run_and_judge, spark_for
from harness.contracts.progress import ProgressDisplay
from harness.errors import UsageError
from harness.seeds import check_seed

if TYPE_CHECKING:
    from rich.console import RenderableType

    from harness.runs.experiment import Experiment
    from harness.scenarios.kafka_bugs import RequestBug


def add_parser(commands: Subcommands) -> None:
    """Adds the command."""
    parser = add_command(
        commands, "reproduce", reproduce, "run a scripted scenario and compare its outcome"
    )
    parser.add_argument(
        "scenario", metavar="SCENARIO", help="the scenario: last-replica-standing or kafka-bug"
    )
    parser.add_argument(
        "--variant",
        metavar="NAME",
        help="run this variant, for example V3a, B-28 or null-records (default: V3b, or B-31)",
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="run every variant with the profiles kafka-3.4, 3.6, 3.9, 4.0 and 4.1, or with the given profile or "
        "version, and write what was predicted and what was seen as a page",
    )
    parser.add_argument(
        "--attempts",
        type=positive_number,
        default=1,
        metavar="N",
        help="run N times, with consecutive seeds (default: 1)",
    )
    add_world_options(parser, "simulation")
    add_system_option(parser, "reference")
    add_profile_option(parser, "kafka-4.1, or that of the system's version")
    add_single_run_options(parser)


def reproduce(options: argparse.Namespace) -> int:
    """Runs a scripted scenario, judges it, and compares the outcome with the predicted one."""
    from harness.environments.registry import DEFAULT
    from harness.runs.experiment_file import check_hosts_used
    from harness.runs.scripted import scenario_experiment
    from harness.scenarios import find_scenario, kafka_bugs

    is_kafka_bug = options.scenario == "kafka-bug" and not options.all
    if is_kafka_bug and options.variant in kafka_bugs.REQUESTS:
        return _request(options, kafka_bugs.REQUESTS[options.variant])
    check_hosts_used(options.hosts, options.on or DEFAULT)
    if options.all:
        return _matrix(options)
    scenario = find_scenario(options.scenario, options.variant)
    experiment = scenario_experiment(
        scenario,
        profile=options.profile,
        sim_wire=options.sim_wire,
        on=options.on,
        inventory=options.hosts,
        **system_keys(options),
    )
    if options.attempts == 1:
        return run_and_judge(options, experiment)
    return _attempts(options, experiment)


def _attempts(options: argparse.Namespace, experiment: "Experiment") -> int:
    from harness.runs.execute import judge, record
    from harness.runs.outcomes import attempts_summary
    from results.tables import line, table

    store = open_store(options, to_write=True)
    spark = spark_for(options, store)
    seeds = range(options.seed, options.seed + options.attempts)
    check_seed(seeds[-1])
    with StandardErrorProgress(quiet=options.quiet) as progress:
        directories = [record(experiment, seed, store, progress) for seed in seeds]
        summaries = judge(directories, store, spark, progress)
    total = attempts_summary(experiment, summaries)
    if options.json:
        print_json(total)
    else:
        rows = [
            (
                str(summary["verdict"]),
                str(summary["outcome"]),
                str(summary["unexcused_lost_records"]),
                str(summary["run"]),
            )
            for summary in summaries
        ]
        show(
            table(("verdict", "outcome", "lost", "run"), rows, right={"lost"}),
            line(
                f"{experiment.scenario} on {experiment.on}, {experiment.profile}: acknowledged "
                f"records lost in {total['with_loss']} of {total['attempts']} attempts "
                f"({total['lost_records']} records); outcome as predicted in "
                f"{total['as_predicted']} of {total['attempts']}"
            ),
        )
    is_as_predicted = total["as_predicted"] == total["attempts"]
    return exit_codes.VALID if is_as_predicted else exit_codes.INVALID


def _matrix(options: argparse.Namespace) -> int:
    """Runs every variant in every column, and shows which outcomes are not the predicted ones."""
    from harness.runs.execute import judge, record
    from harness.runs.matrix import cells_of, matrix_of
    from results.report.matrix import build_matrix_report
    from results.store import write_json
    from results.tables import line

    if options.variant is not None or options.attempts != 1:
        raise UsageError("--all runs every variant once: leave --variant and --attempts out")
    cells = cells_of(
        options.scenario,
        options.profile,
        sim_wire=options.sim_wire,
        on=options.on,
        inventory=options.hosts,
        **system_keys(options),
    )
    store = open_store(options, to_write=True)
    spark = spark_for(options, store)
    with StandardErrorProgress(quiet=options.quiet) as progress:
        directories = [
            record(
                cell.experiment,
                options.seed,
                store,
                _OneOfMany(progress, f"{cell.variant}, {cell.column}", done, len(cells)),
            )
            for done, cell in enumerate(cells)
        ]
        matrix = matrix_of(options.scenario, cells, judge(directories, store, spark, progress))
    write_json(store.root / f"{options.scenario}.json", matrix)
    page = build_matrix_report(
        store.root / f"{options.scenario}.html", matrix, _matrix_command(options)
    )
    if options.json:
        print_json({**matrix, "report": str(page)})
    else:
        show(
            _matrix_table(matrix),
            line(f"{matrix['as_predicted']} of {matrix['cells']} outcomes as predicted"),
            line(f"page: {page}"),
        )
    is_as_predicted = matrix["as_predicted"] == matrix["cells"]
    return exit_codes.VALID if is_as_predicted else exit_codes.INVALID


class _OneOfMany:
    """The progress of one run of several: a part of the whole, without lines of its own.

    Args:
        progress: Shows the progress of all runs.
        label: What this run is.
        done: How many runs are done.
        total: How many there are.
    """

    def __init__(self, progress: ProgressDisplay, label: str, done: int, total: int) -> None:
        self._progress = progress
        self._label = label
        self._done = done
        self._total = total
        self.update("", 0.0)

    def message(self, text: str) -> None:
        """Shows nothing: of many runs, only which one runs matters."""

    def update(self, label: str, fraction: float, detail: str = "") -> None:
        """Shows how much of all runs is done."""
        whole = (self._done + fraction) / self._total
        self._progress.update(self._label, whole, f"{self._done}/{self._total} runs")


def _matrix_command(options: argparse.Namespace) -> str:
    """Returns the command that makes the same matrix again."""
    words = ["laststand", "reproduce", options.scenario, "--all", "--seed", str(options.seed)]
    for option, value in (
        ("--on", options.on),
        ("--hosts", options.hosts),
        ("--system", options.system),
        ("--profile", options.profile),
    ):
        if value is not None:
            words += [option, str(value)]
    return shlex.join(words)


def _matrix_table(matrix: Mapping[str, Any]) -> "RenderableType":
    from results.tables import table

    columns = matrix["columns"]
    rows = []
    for row in matrix["rows"]:
        cells = [row["cells"][column] for column in columns]
        seen = [
            cell["seen"]
            if cell["seen"] == cell["predicted"]
            else f"{cell['seen']} (predicted {cell['predicted']})"
            for cell in cells
        ]
        rows.append((row["variant"], *seen))
    return table(("variant", *columns), rows)


def _request(options: argparse.Namespace, bug: "RequestBug") -> int:
    """Sends the request of a bug to processes of this machine, and compares what came back with the prediction."""
    from harness.conformance.run import never_answered
    from harness.systems.apache_kafka.versions import NAME, parse_version
    from results.tables import line, table

    keys = system_keys(options)
    if keys.get("system") != NAME or not keys.get("version"):
        raise UsageError(
            f"variant {options.variant} is a request to Apache Kafka; name a version, for example "
            f"--system {NAME}:4.1.2"
        )
    if options.profile is not None or options.hosts is not None:
        raise UsageError(
            f"variant {options.variant} takes no --profile and no --hosts: the version decides, and "
            "it is sent to processes of this machine"
        )
    if options.on not in (None, "local"):
        raise UsageError(
            f"variant {options.variant} is sent to processes of this machine: leave --on "
            f"{options.on} out, or use --on local"
        )
    version = parse_version(keys["version"])
    with StandardErrorProgress(quiet=options.quiet) as progress:
        outcomes = [
            "blocked" if never_answered(version, bug.request, progress) else "ok"
            for _ in range(options.attempts)
        ]
    predicted = bug.predicted(str(version))
    is_as_predicted = set(outcomes) == {predicted}
    total = {
        "variant": options.variant,
        "system": f"{NAME}:{version}",
        "request": bug.request,
        "outcomes": outcomes,
        "predicted": predicted,
        "is_as_predicted": is_as_predicted,
    }
    if options.json:
        print_json(total)
    else:
        rows = [(str(number), outcome) for number, outcome in enumerate(outcomes, 1)]
        show(
            table(("attempt", "outcome"), rows, right={"attempt"}),
            line(f"{bug.title}: Apache Kafka {version}, predicted {predicted or 'nothing'}"),
        )
    return exit_codes.VALID if is_as_predicted else exit_codes.INVALID
