"""`laststand check`: judges a stored run again, or a history from elsewhere."""

import argparse
from pathlib import Path

from harness.cli.foreign import check_file
from harness.cli.options import (
    RUN_HELP,
    Subcommands,
    add_command,
    add_spark_options,
    parse_spark_options,
    positive_number,
)
from harness.cli.progress import StandardErrorProgress
from harness.cli.runs import EXIT_CODE_OF, open_store, print_run
from harness.cli.selftest import self_test_run
from harness.errors import HistoryError, UsageError

FORMATS = ("auto", "edn", "jsonl", "jepsen-log")
"""Values of `harness.history.foreign.read.Format`, whose import would slow down every command."""

_SUFFIXES = (".edn", ".jsonl", ".json", ".log", ".txt", ".gz")


def add_parser(commands: Subcommands) -> None:
    """Adds the command."""
    parser = add_command(
        commands, "check", check, "judge a stored run again, or a history from elsewhere"
    )
    parser.add_argument(
        "run", metavar="RUN", help=f"{RUN_HELP}; or a file that another tool recorded"
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="read a file as EDN, JSON lines or a log of Jepsen (default: auto)",
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="judge a file as log, list-append, or an object such as cas-register (default: what its "
        "functions show)",
    )
    parser.add_argument(
        "--initial",
        metavar="VALUE",
        help="begin with this value of a register or key, as EDN (default: nil)",
    )
    parser.add_argument(
        "--promise",
        metavar="LEVEL",
        help="judge transactions by this isolation level (default: strict-serializable)",
    )
    parser.add_argument(
        "--time-limit",
        type=positive_number,
        metavar="S",
        help="stop the search of a model after this many seconds, with unknown (default: 60)",
    )
    add_spark_options(parser)
    parser.add_argument(
        "--selftest",
        action="store_true",
        help="plant every anomaly into copies of the run and show which ones the checkers find",
    )


def check(options: argparse.Namespace) -> int:
    """Judges a stored run again, or a history from elsewhere."""
    path = Path(options.run)
    if path.is_file():
        if options.selftest:
            raise UsageError(f"--selftest is for stored runs; {path} is a file")
        return check_file(options, path)
    if path.suffix in _SUFFIXES and not path.exists():
        raise HistoryError(f"there is no file {path}")
    for option in ("format", "model", "initial", "promise", "time_limit"):
        if getattr(options, option) is not None:
            name = option.replace("_", "-")
            raise UsageError(f"--{name} is for files of other tools; {path} is a stored run")
    return _check_run(options)


def _check_run(options: argparse.Namespace) -> int:
    from harness.runs.execute import judge

    store = open_store(options)
    if options.selftest:
        return self_test_run(options, store.find(options.run))
    spark = parse_spark_options(options)
    directory = store.find(options.run)
    with StandardErrorProgress(quiet=options.quiet) as progress:
        (summary,) = judge([directory], store, spark, progress)
    print_run(options, directory, summary)
    return EXIT_CODE_OF[summary["verdict"]]
