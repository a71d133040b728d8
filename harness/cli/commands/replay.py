"""`laststand replay`: runs a stored run again, in the simulation or in another world."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import exit_codes
from harness.cli.options import (
    Subcommands,
    add_command,
    add_run_argument,
    add_spark_options,
    add_world_options,
    positive_number,
)
from harness.cli.output import print_json, show
from harness.cli.progress import StandardErrorProgress
from harness.cli.runs import EXIT_CODE_OF, open_store, print_run, spark_for, worst_exit_code
from harness.errors import HarnessFailure, UsageError
from results.layout import RunFiles
from results.store import RunStore, read_json, write_json

if TYPE_CHECKING:
    from harness.runs.experiment import Experiment


def add_parser(commands: Subcommands) -> None:
    """Adds the command."""
    parser = add_command(commands, "replay", replay, "run a stored run again, here or elsewhere")
    add_run_argument(parser)
    add_world_options(parser, "the run's own, to compare trace hashes")
    parser.add_argument(
        "--attempts",
        type=positive_number,
        default=3,
        metavar="N",
        help="run N times in another world (default: %(default)s)",
    )
    add_spark_options(parser)


def replay(options: argparse.Namespace) -> int:
    """Runs a stored run again.

    In its own world, the simulation, a different trace hash is a failure whose message gives the cause. In another
    world the result is how often the stored finding was reproduced.
    """
    from harness.runs.execute import judge, record
    from harness.runs.replay import load_replay

    store = open_store(options, to_write=True)
    spark = spark_for(options, store)
    original = store.find(options.run)
    experiment, seed, stored = load_replay(original)
    if options.on is not None and options.on != experiment.on:
        return _replay_elsewhere(options, store, original, experiment, seed)
    if not experiment.environment.is_simulated:
        raise UsageError(
            f"{store.run_id(original)} ran on {experiment.on}, where runs are not repeatable; "
            "run its experiment.toml again instead, or name another world with --on"
        )
    with StandardErrorProgress(quiet=options.quiet) as progress:
        directory = record(experiment, seed, store, progress)
        again = read_json(RunFiles(directory).replay)
        (summary,) = judge([directory], store, spark, progress)
    is_same = again["trace_hash"] == stored["trace_hash"]
    summary["replay_of"] = store.run_id(original)
    summary["same_trace"] = is_same
    write_json(RunFiles(directory).run, summary)
    store.publish(directory)
    print_run(options, directory, summary)
    if is_same:
        return EXIT_CODE_OF[summary["verdict"]]
    cause = (
        "the code has changed since that run"
        if again["code"] != stored["code"]
        else "the code is the same, so the simulation is not deterministic"
    )
    raise HarnessFailure(
        f"trace hash {again['trace_hash']} differs from the stored {stored['trace_hash']}: {cause}"
    )


def _replay_elsewhere(
    options: argparse.Namespace,
    store: RunStore,
    original: Path,
    experiment: "Experiment",
    seed: int,
) -> int:
    """Runs the stored schedule in another world several times, and counts how often its finding was reproduced."""
    from harness.runs.execute import judge, record
    from harness.runs.experiment import with_overrides
    from harness.runs.outcomes import confirms, finding_of
    from harness.runs.record import check_world
    from results.tables import line, table

    spark = spark_for(options, store)
    finding = finding_of(read_json(RunFiles(original).run))
    data: dict[str, Any] = {
        "replay_of": store.run_id(original),
        "on": options.on,
        "finding": finding,
        "attempts": options.attempts,
    }
    try:
        elsewhere = with_overrides(experiment, on=options.on, inventory=options.hosts)
        check_world(elsewhere, seed)
    except UsageError as error:
        if options.json:
            print_json({**data, "result": "cannot be expressed", "reason": str(error)})
        else:
            show(line(f"cannot be expressed on {options.on}: {error}"))
        return exit_codes.UNKNOWN
    with StandardErrorProgress(quiet=options.quiet) as progress:
        directories = [record(elsewhere, seed, store, progress) for _ in range(options.attempts)]
        summaries = judge(directories, store, spark, progress)
    confirmed = sum(confirms(summary, finding) for summary in summaries)
    for directory, summary in zip(directories, summaries, strict=True):
        summary["replay_of"] = data["replay_of"]
        write_json(RunFiles(directory).run, summary)
        store.publish(directory)
    result = f"confirmed {confirmed} of {options.attempts}" if confirmed else "not reproduced"
    if options.json:
        print_json({**data, "result": result, "runs": [summary["run"] for summary in summaries]})
    else:
        rows = [
            (str(summary["verdict"]), finding_of(summary), str(summary["run"]))
            for summary in summaries
        ]
        show(
            table(("verdict", "finding", "run"), rows),
            line(f"{data['replay_of']} found {finding!r}; on {options.on}: {result}"),
        )
    return worst_exit_code(summaries)
