"""`laststand check`: judges a stored run again, or a history from elsewhere."""

import argparse
from pathlib import Path

from harness.cli.foreign import check_file
from harness.cli.options import (
    RUN_HELP,
    Subcommands,
    add_command,
    add_judging_options,
    natural_number,
    positive_number,
)
from harness.cli.progress import StandardErrorProgress
from harness.cli.runs import EXIT_CODE_OF, open_store, print_run, spark_for
from harness.cli.selftest import self_test_run
from harness.errors import HistoryError, UsageError

FORMATS = ("auto", "edn", "jsonl", "jepsen-log")
"""Values of `harness.history.foreign.read.Format`, whose import would slow down every command."""

ACKS = {"0": 0, "1": 1, "all": -1}
"""Values of `--acks`, and how histories record them."""

FILE_OPTIONS = (
    "format",
    "model",
    "initial",
    "promise",
    "time_limit",
    "acks",
    "sparse",
    "at_least_once",
    "compacted",
    "log_start_offset",
    "picture",
)
"""Options that are for files only."""

RUN_OPTIONS = ("spark", "no_spark", "spark_master", "spark_conf")
"""Options that are for stored runs only."""

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
    parser.add_argument(
        "--acks",
        choices=tuple(ACKS),
        help="judge appends of a file that do not state it as sent with these acks (default: what its first line "
        "declares, otherwise all)",
    )
    parser.add_argument(
        "--sparse",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="allow, or forbid, that offsets are missing from the log in a file (default: what its first line "
        "declares; allowed in EDN)",
    )
    parser.add_argument(
        "--at-least-once",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="allow, or forbid, that a record in a file is in the log twice, as after a retry without idempotence "
        "(default: what its first line declares, otherwise forbidden)",
    )
    parser.add_argument(
        "--compacted",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="allow, or forbid, that a record in a file is removed once there is a later one of its key (default: "
        "what its first line declares, otherwise forbidden)",
    )
    parser.add_argument(
        "--log-start-offset",
        type=natural_number,
        metavar="N",
        help="expect no record of a file below this offset, which retention may have removed (default: what its "
        "first line declares, otherwise 0)",
    )
    parser.add_argument(
        "--picture",
        type=Path,
        metavar="SVG",
        help="draw why an object is not linearizable into this file, if a model judges it",
    )
    add_judging_options(parser)
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
        for option in RUN_OPTIONS:
            if getattr(options, option):
                name = option.replace("_", "-")
                raise UsageError(
                    f"--{name} is for stored runs, and {path} is a file, which is judged in this process; leave it"
                    " out"
                )
        return check_file(options, path, acks=ACKS.get(options.acks))
    if path.suffix in _SUFFIXES and not path.exists():
        raise HistoryError(f"there is no file {path}")
    if path.exists() and not path.is_dir():
        raise HistoryError(
            f"{path} is neither a file nor a directory; only these can be read, so write the history to a file"
        )
    for option in FILE_OPTIONS:
        if getattr(options, option) is not None:
            name = option.replace("_", "-")
            raise UsageError(f"--{name} is for files of other tools; {path} is a stored run")
    return _check_run(options)


def _check_run(options: argparse.Namespace) -> int:
    from harness.runs.execute import judge

    store = open_store(options)
    if options.selftest:
        return self_test_run(options, store.find(options.run))
    spark = spark_for(options, store)
    directory = store.find(options.run)
    with StandardErrorProgress(quiet=options.quiet) as progress:
        (summary,) = judge([directory], store, spark, progress)
    print_run(options, directory, summary)
    return EXIT_CODE_OF[summary["verdict"]]
