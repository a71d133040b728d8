"""`laststand check`: judges a stored run again."""

import argparse

from harness.cli.options import (
    Subcommands,
    add_command,
    add_run_argument,
    add_spark_options,
    parse_spark_options,
)
from harness.cli.progress import StandardErrorProgress
from harness.cli.runs import EXIT_CODE_OF, open_store, print_run
from harness.cli.selftest import self_test_run


def add_parser(commands: Subcommands) -> None:
    """Adds the command."""
    parser = add_command(commands, "check", check, "judge a stored run again")
    add_run_argument(parser)
    add_spark_options(parser)
    parser.add_argument(
        "--selftest",
        action="store_true",
        help="plant every anomaly into copies of the run and show which ones the checkers find",
    )


def check(options: argparse.Namespace) -> int:
    """Judges a stored run again."""
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
