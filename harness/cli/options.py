"""The parser class of all commands, and the options and types that several commands share."""

import argparse
import os
import re
import textwrap
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from harness.cli.examples import examples_of
from harness.errors import HarnessError, UsageError
from harness.seeds import check_seed
from results.layout import DEFAULT_ROOT

if TYPE_CHECKING:
    from checkers.spark import SparkOptions
    from harness.campaigns.compare import Workers

HELP_WIDTH = 78
"""Columns of a description. argparse wraps everything else, but would wrap the examples too."""

JSON_FLAG = "--json"
GLOBAL_FLAGS = (JSON_FLAG, "--quiet")
GLOBAL_OPTIONS = ("--results",)
"""Options that may come before the command, too; those of the second tuple take a value."""

Action: TypeAlias = Callable[[argparse.Namespace], int]
"""Runs a command and returns its exit code."""

Subcommands: TypeAlias = "argparse._SubParsersAction[CommandParser]"

RUN_HELP = "a run id, a unique prefix of one, a path, or latest (the newest finished run)"

DEFAULT_SPARK_MASTER = "local[2]"

PORT_MAX = 65_535

GUIDED_SHARE = 50
"""Per cent of the runs of a guided search that are mutated, unless the user states another share."""

SMALL_OPERATIONS = 200_000
"""Commands for single runs judge fewer operations than this without Spark, whose start would take longer
(`benchmarks/README.md`)."""

_BUDGET = re.compile(r"(?:(\d{1,4})h)?(?:(\d{1,5})m)?(?:(\d{1,6})s)?")
_SPARK_MASTER = re.compile(r"local(-cluster)?(\[[\d*, ]+\])?|yarn|(spark|k8s)://.+")


class MisuseError(HarnessError):
    """The command line is wrong."""


class CommandParser(argparse.ArgumentParser):
    """An argument parser that reports an error as one sentence with a suggestion, and never exits for it."""

    def error(self, message: str) -> NoReturn:
        """Raises `MisuseError`."""
        raise MisuseError(f"{message}{self._suggestion(message)} (see `{self.prog} --help`)")

    def refuse_unknown(self, words: list[str]) -> NoReturn:
        """Raises `MisuseError` for arguments that this parser does not know."""
        self.error(f"unrecognized arguments: {' '.join(words)}")

    def subcommand(self, word: str) -> "CommandParser":
        """Returns the parser of a command.

        Raises:
            MisuseError: There is no such command.
        """
        commands = self._commands()
        if word not in commands:
            self.error(f"there is no command {word!r}{_did_you_mean(word, list(commands))}")
        return commands[word]

    def has_option(self, option: str) -> bool:
        """Returns whether it takes an option such as --json."""
        return option in self._option_string_actions

    def has_subcommand(self, word: str) -> bool:
        """Returns whether a word is one of its commands."""
        return word in self._commands()

    def _suggestion(self, message: str) -> str:
        known = [option for action in self._actions for option in action.option_strings]
        for word in message.replace("=", " ").split():
            bare = word.strip("'\",:()")
            if bare.startswith("--") and bare not in known:
                return _did_you_mean(bare, known)
        if "invalid choice:" in message:
            wrong = message.split("invalid choice:")[1].split("'")[1]
            return _did_you_mean(wrong, list(self._commands()))
        return ""

    def _commands(self) -> "dict[str, CommandParser]":
        return {
            str(name): parser
            for action in self._actions
            if isinstance(action, argparse._SubParsersAction)
            for name, parser in action.choices.items()
        }


def _did_you_mean(wrong: str, known: list[str]) -> str:
    near = get_close_matches(wrong, known)
    # Letters in the wrong order are the likeliest mistake.
    swapped = [one for one in near if sorted(one) == sorted(wrong)]
    return f"; did you mean {(swapped or near)[0]}?" if near else ""


def add_command(
    commands: Subcommands, name: str, action: Action, summary: str, *, stores_runs: bool = True
) -> CommandParser:
    """Adds a command with the options that every command has.

    Args:
        commands: Where to add it.
        name: The word a user types.
        action: What runs it.
        summary: One line that starts with an imperative verb.
        stores_runs: Whether the command reads or writes stored runs (`--results`).
    """
    parser = commands.add_parser(
        name,
        help=summary,
        description=textwrap.fill(f"{summary[0].upper()}{summary[1:]}.", HELP_WIDTH),
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.epilog = examples_of(parser.prog)
    parser.set_defaults(action=action, parser=parser)
    parser.add_argument(
        JSON_FLAG, action="store_true", help="print one JSON object instead of text"
    )
    parser.add_argument("--quiet", action="store_true", help="print no progress on standard error")
    if stores_runs:
        parser.add_argument(
            "--results",
            default=str(DEFAULT_ROOT),
            metavar="DIR",
            help="store runs in this directory, or at a URI such as s3a://bucket/runs (default: %(default)s)",
        )
    return parser


def add_command_family(
    commands: Subcommands, name: str, summary: str, description: str
) -> Subcommands:
    """Adds a command that has subcommands, and returns where to add these."""
    parser = commands.add_parser(
        name,
        help=summary,
        description=textwrap.fill(description, HELP_WIDTH),
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.epilog = examples_of(parser.prog)
    parser.set_defaults(parser=parser)
    return parser.add_subparsers(metavar="ACTION", parser_class=CommandParser)


def add_run_argument(parser: argparse.ArgumentParser) -> None:
    """Adds the positional argument RUN: a stored run."""
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)


def add_world_options(parser: argparse.ArgumentParser, default: str) -> None:
    """Adds `--on` and `--hosts`."""
    parser.add_argument(
        "--on",
        metavar="WORLD",
        help=f"run in simulation, local (processes on this machine), docker or ssh (default: {default})",
    )
    add_hosts_option(parser, "read the hosts for --on ssh from this TOML file")


def add_hosts_option(parser: argparse.ArgumentParser, summary: str) -> None:
    """Adds `--hosts`."""
    parser.add_argument("--hosts", metavar="FILE", help=summary)


def add_system_option(parser: argparse.ArgumentParser, default: str) -> None:
    """Adds `--system`."""
    parser.add_argument(
        "--system",
        metavar="NAME[:VERSION]",
        help=f"test this system, for example apache-kafka:4.1.2 (default: {default})",
    )


def system_keys(options: argparse.Namespace) -> dict[str, str]:
    """Returns the keys of an experiment that `--system` sets."""
    from harness.runs.experiment_file import split_system

    return {} if options.system is None else split_system(options.system)


def add_profile_option(parser: argparse.ArgumentParser, default: str) -> None:
    """Adds `--profile`."""
    parser.add_argument(
        "--profile",
        metavar="NAME",
        help="behave like this release of Kafka: kafka-3.4, kafka-3.6, kafka-3.9, or kafka-4.0 to kafka-4.4 "
        f"(default: {default})",
    )


def add_space_option(parser: argparse.ArgumentParser) -> None:
    """Adds `--space`."""
    parser.add_argument(
        "--space",
        metavar="SPACE",
        help="draw the configuration of every seed: default (every key of the default space, also those that the"
        " file sets) or none (default: the file's [space])",
    )


def add_guided_option(parser: argparse.ArgumentParser) -> None:
    """Adds `--guided`."""
    parser.add_argument(
        "--guided",
        type=share,
        nargs="?",
        const=GUIDED_SHARE,
        metavar="SHARE",
        help="from the 33rd run on, let this share of the runs, 1 to 100 percent, be mutations of runs that "
        f"reached something new (default: {GUIDED_SHARE} if given without SHARE, otherwise none)",
    )


def add_single_run_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of commands that run one seed."""
    parser.add_argument(
        "--seed", type=seed, default=1, metavar="N", help="use this root seed (default: 1)"
    )
    parser.add_argument(
        "--sim-wire",
        action="store_true",
        help="encode and decode every simulated message (default: a sample)",
    )
    add_judging_options(parser)


def add_campaign_options(parser: argparse.ArgumentParser, default: int) -> None:
    """Adds the experiment and the options of commands that run many seeds."""
    parser.add_argument(
        "experiment",
        type=Path,
        nargs="?",
        metavar="EXPERIMENT",
        help="the experiment file (default: a built-in one with random faults)",
    )
    parser.add_argument(
        "--seeds",
        type=positive_number,
        metavar="N",
        help=f"run this many seeds (default: {default})",
    )
    parser.add_argument(
        "--first-seed", type=seed, metavar="N", help="start with this seed (default: 0)"
    )
    add_resume_options(
        parser, "store the first N failing runs whole, with their reports (default: 10)"
    )
    add_worker_options(parser)


def add_resume_options(parser: argparse.ArgumentParser, keeping: str) -> None:
    """Adds `--keep-failing`, described by `keeping`, and `--resume`."""
    parser.add_argument("--keep-failing", type=natural_number, metavar="N", help=keeping)
    parser.add_argument(
        "--resume",
        metavar="CAMPAIGN",
        help="continue this campaign where it was interrupted: its path, name, or a unique prefix",
    )


def add_worker_options(parser: argparse.ArgumentParser) -> None:
    """Adds `--jobs` and the options of Spark, whose default master has that many cores."""
    parser.add_argument(
        "--jobs",
        type=positive_number,
        metavar="N",
        help="run this many simulated runs at once on this machine (default: all cores)",
    )
    add_spark_options(parser, "local[JOBS]")
    parser.set_defaults(spark_master=None)


def add_judging_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of Spark for commands that judge single runs, which use it for large ones only."""
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument(
        "--spark",
        action="store_true",
        help="judge with a Spark job, whatever the size (default: from "
        f"{SMALL_OPERATIONS:,} operations, or if a master or a key is given)",
    )
    chosen.add_argument("--no-spark", action="store_true", help="judge in this process, always")
    _add_spark_place(parser, DEFAULT_SPARK_MASTER)
    parser.set_defaults(spark_master=None)


def add_spark_options(
    parser: argparse.ArgumentParser, default_master: str = DEFAULT_SPARK_MASTER
) -> None:
    """Adds `--no-spark`, `--spark-master` and `--spark-conf`."""
    parser.add_argument(
        "--no-spark", action="store_true", help="use local processes instead of a Spark job"
    )
    _add_spark_place(parser, default_master)


def _add_spark_place(parser: argparse.ArgumentParser, default_master: str) -> None:
    parser.add_argument(
        "--spark-master",
        default=DEFAULT_SPARK_MASTER,
        metavar="URL",
        help=f"run Spark jobs on this master (default: {default_master})",
    )
    parser.add_argument(
        "--spark-conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set a Spark configuration key; can be repeated",
    )


def parse_judging_options(options: argparse.Namespace) -> "SparkOptions":
    """Returns the options of `add_judging_options` as a value.

    Raises:
        UsageError: See `parse_spark_options`.
    """
    from dataclasses import replace

    spark = parse_spark_options(options)
    if options.spark or options.spark_master is not None or options.spark_conf:
        return spark
    return replace(spark, operations_min=SMALL_OPERATIONS)


def parse_spark_options(options: argparse.Namespace) -> "SparkOptions":
    """Returns the Spark options as a value.

    Raises:
        UsageError: A `--spark-conf` is not of the form key=value, or Spark has no such kind of master.
    """
    from checkers.spark import SparkOptions

    master = DEFAULT_SPARK_MASTER if options.spark_master is None else options.spark_master
    if not _SPARK_MASTER.fullmatch(master):
        raise UsageError(
            "--spark-master takes local[2], local[*], yarn, spark://HOST:PORT or k8s://HOST:PORT, "
            f"not {options.spark_master!r}"
        )
    conf = []
    for item in options.spark_conf:
        key, separator, value = item.partition("=")
        if not separator or not key:
            raise UsageError(f"--spark-conf takes key=value, not {item!r}")
        conf.append((key, value))
    return SparkOptions(enabled=not options.no_spark, master=master, conf=tuple(conf))


def jobs_of(options: argparse.Namespace) -> int:
    """Returns `--jobs`, or one per core that this process may use."""
    return options.jobs or len(os.sched_getaffinity(0))


def parse_workers(options: argparse.Namespace, *, keep_free: int = 0) -> "Workers":
    """Returns where the runs of a campaign take place.

    Args:
        options: The command line.
        keep_free: How many of the cores Spark on this machine leaves free.

    Raises:
        UsageError: See `parse_spark_options`; or `--jobs` is given with a Spark master, which has its own cores.
    """
    from harness.campaigns.compare import Workers

    if options.spark_master is not None and options.jobs is not None:
        raise UsageError(
            "--jobs is for runs on this machine; with --spark-master, the master decides how many run at once"
        )
    jobs = jobs_of(options)
    if options.spark_master is None:
        options.spark_master = f"local[{max(jobs - keep_free, 1)}]"
        spark = parse_spark_options(options)
        options.spark_master = None
        return Workers(jobs=jobs, spark=spark)
    return Workers(jobs=jobs, spark=parse_spark_options(options))


def positive_number(text: str) -> int:
    """Returns a whole number of at least 1; an argparse type."""
    return _whole_number(text, 1)


def share(text: str) -> int:
    """Returns a whole number of per cent, from 1 to 100; an argparse type."""
    number = text.removesuffix("%")
    if not (number.isascii() and number.isdecimal()):
        raise argparse.ArgumentTypeError(
            f"{text!r} was taken as the SHARE, a whole number from 1 to 100; put the experiment file first"
        )
    if not 1 <= int(number) <= 100:
        raise argparse.ArgumentTypeError(f"{text!r} is not a SHARE from 1 to 100 percent")
    return int(number)


def natural_number(text: str) -> int:
    """Returns a whole number of at least 0; an argparse type."""
    return _whole_number(text, 0)


def port_number(text: str) -> int:
    """Returns a TCP port, or 0 for a free one; an argparse type."""
    number = _whole_number(text, 0)
    if number > PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is more than {PORT_MAX}, the highest port")
    return number


class GivenOnce(argparse.Action):
    """Stores the value of an option, and refuses the option if it was given before."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        """Stores the value."""
        if getattr(namespace, self.dest) is not None:
            parser.error(f"{option_string} was given twice; give it once")
        setattr(namespace, self.dest, values)


def _whole_number(text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
    return number


def budget_s(text: str) -> float:
    """Returns the seconds of "2h", "1h30m" or "90s"; an argparse type."""
    found = _BUDGET.fullmatch(text)
    hours, minutes, seconds = (int(part or 0) for part in found.groups()) if found else (0, 0, 0)
    total = 3600 * hours + 60 * minutes + seconds
    if not total:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 2h, 30m, 1h30m or 90s")
    return float(total)


def seed(text: str) -> int:
    """Returns a seed; an argparse type."""
    try:
        return check_seed(int(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def join_names(names: Iterable[str]) -> str:
    """Returns names for a sentence: "a, b or c"."""
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
