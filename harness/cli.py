"""The command line: `laststand COMMAND ...`.

Results go to standard output (a table, or one JSON object with --json), progress to standard error. Exit codes are
an interface: 0 valid, 1 invalid, 2 unknown, 254 usage, 255 harness failure. Every error a user can cause is one
sentence. SIGTERM does what SIGINT does: the command takes down what it made, and ends with 255.
"""

import argparse
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from harness import cluster_parsers, exit_codes, world_parsers
from harness.errors import HarnessError, HarnessFailure, UsageError
from harness.seeds import check_seed
from results.layout import DEFAULT_ROOT

DESCRIPTION = """\
laststand breaks replicated logs on purpose and proves what was lost.

Start with:  laststand reproduce last-replica-standing --profile kafka-4.0
"""


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one sentence, with a suggestion, and exit code 254."""

    def error(self, message: str) -> NoReturn:
        raise _MisuseError(f"{message}{self._suggestion(message)} (see `{self.prog} --help`)")

    def _suggestion(self, message: str) -> str:
        known = [option for action in self._actions for option in action.option_strings]
        for word in message.replace("=", " ").split():
            bare = word.strip("'\",:()")
            if bare.startswith("--") and bare not in known:
                return _did_you_mean(bare, known)
        if "invalid choice:" in message:
            wrong = message.split("invalid choice:")[1].split("'")[1]
            return _did_you_mean(wrong, self._command_names())
        return ""

    def _command_names(self) -> list[str]:
        return [
            str(name)
            for action in self._actions
            if isinstance(action, argparse._SubParsersAction)
            for name in action.choices
        ]


def _did_you_mean(wrong: str, known: list[str]) -> str:
    near = get_close_matches(wrong, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


class _MisuseError(HarnessError):
    """The command line is wrong."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    with _sigterm_interrupts():
        return _main(arguments)


@contextlib.contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Makes SIGTERM, which CI systems send, do what SIGINT does while the block is executed."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    before = signal.signal(signal.SIGTERM, _terminated)
    is_ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN  # as in a shell's background job
    if is_ignored:
        # Blocked instead: asyncio cancels in order only where it finds this handler.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        if is_ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _terminated(_: int, frame: FrameType | None) -> None:
    # Once: `timeout` sends it twice, and the second must not interrupt the cleaning up. Not SIG_IGN, which
    # programs that are started meanwhile would inherit.
    signal.signal(signal.SIGTERM, lambda *_: None)
    interrupt = signal.getsignal(signal.SIGINT)
    if callable(interrupt):
        interrupt(signal.SIGINT, frame)


def _main(arguments: Sequence[str] | None) -> int:
    parser = build_parser()
    try:
        options, unknown = parser.parse_known_args(arguments)
        if unknown:
            _refuse_unknown(parser, options, unknown)
        if not hasattr(options, "command"):
            parser.print_help()
            return exit_codes.USAGE
        from harness import commands

        code = int(getattr(commands, options.command)(options))
        sys.stdout.flush()
        return code
    except HarnessError as error:
        print(f"laststand: {error}", file=sys.stderr)
        return exit_codes.USAGE
    except HarnessFailure as error:
        print(f"laststand: harness failure: {error}", file=sys.stderr)
        return exit_codes.FAILURE
    except KeyboardInterrupt:
        print("laststand: interrupted", file=sys.stderr)
        # Under `python -m`, an interrupt that left an exec(), such as a dataclass's, makes Python end with 130
        # although it was caught; the next exec() makes it forget that.
        exec("")
        return exit_codes.FAILURE
    except BrokenPipeError:
        # Whoever read has gone (`laststand list | head`). Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.FAILURE
    except Exception as error:
        return _failure(error)


def build_parser() -> argparse.ArgumentParser:
    """Returns the parser of all commands."""
    parser = _Parser(
        prog="laststand",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"laststand {version('laststand')}")
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=_Parser)

    doctor = _command(commands, "doctor", "say what was found on this machine and what is missing")
    doctor.add_argument(
        "--warm", action="store_true", help="also prepare what makes Spark start fast"
    )

    doctor.add_argument(
        "--on", metavar="WORLD", help="also say what every fault is done with there"
    )
    doctor.add_argument("--hosts", metavar="FILE", help="TOML with the hosts, for --on ssh")

    world_parsers.add_parsers(commands, _command)

    reproduce = _command(commands, "reproduce", "carry out a scripted scenario")
    reproduce.add_argument("scenario", help="for example last-replica-standing")
    reproduce.add_argument("--variant", help="for example V3b (default), V1 ... V8")
    reproduce.add_argument(
        "--attempts", type=_number, default=1, help="how often, seed by seed (default: 1)"
    )
    _world(reproduce, "simulation")
    _profile(reproduce)
    _run_options(reproduce)

    run = _command(commands, "run", "run an experiment from a TOML file")
    run.add_argument("experiment", type=Path, help="the TOML file")
    _profile(run)
    _world(run, "the file's")
    run.add_argument("--weather", help="calm, light or stormy (default: the file's)")
    run.add_argument(
        "--duration-ms", type=_number, help="virtual milliseconds (default: the file's)"
    )
    run.add_argument("--print-config", action="store_true", help="print what would run, and stop")
    _run_options(run)

    replay = _command(commands, "replay", "run a stored run again, here or in another world")
    replay.add_argument("run", help="a run, its unique beginning, a path, or latest")
    _world(replay, "the run's own, to compare trace hashes")
    replay.add_argument(
        "--attempts", type=_number, default=3, help="in another world (default: %(default)s)"
    )
    _spark_options(replay)

    check = _command(commands, "check", "judge a stored run again")
    check.add_argument("run", help="a run, its unique beginning, a path, or latest")
    _spark_options(check)

    report = _command(commands, "report", "render a stored run's report again")
    report.add_argument("run", help="a run, its unique beginning, a path, or latest")

    _command(commands, "list", "list the stored runs").set_defaults(command="list_runs")

    compare = _command(commands, "compare", "the same seeds under two settings, with statistics")
    compare.add_argument("experiment", type=Path, nargs="?", help="TOML (default: a built-in one)")
    compare.add_argument(
        "--vary",
        required=True,
        metavar="KEY=A,B",
        help="for example profile=kafka-4.0,kafka-4.1",
    )
    _world(compare, "the file's")
    _seed_options(compare, 200)

    swarm = _command(commands, "swarm", "many seeds of one experiment, one verdict")
    swarm.add_argument("experiment", type=Path, nargs="?", help="TOML (default: a built-in one)")
    _profile(swarm)
    _world(swarm, "the file's")
    _seed_options(swarm, 1000)

    cluster_parsers.add_parsers(commands, _command)

    broker = _command(commands, "broker", "run one node, broker or controller, until SIGTERM")
    broker.add_argument("--config", type=Path, required=True, metavar="FILE", help="its node.toml")
    broker.add_argument(
        "--until-stdin-closes",
        action="store_true",
        help="end at once when standard input closes, as nodes of a run do",
    )

    demo = _command(commands, "demo", "the tour: the bug, the cure, and a small comparison")
    demo.add_argument("--seeds", type=_number, default=20, help="of the comparison (default: 20)")
    _spark_options(demo)
    return parser


def _command(commands: Any, name: str, summary: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=summary, allow_abbrev=False
    )
    parser.set_defaults(command=name, parser=parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")
    parser.add_argument(
        "--results",
        type=Path,
        default=DEFAULT_ROOT,
        metavar="DIR",
        help="where runs are stored (default: %(default)s)",
    )
    return parser


def _world(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--on",
        metavar="WORLD",
        help=f"simulation, local (processes here), docker or ssh (default: {default})",
    )
    parser.add_argument("--hosts", metavar="FILE", help="TOML with the hosts, for --on ssh")


def _profile(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--profile", help="kafka-3.4, 3.6, 3.9, 4.0 or 4.1 (kafka-4.1 by default)")


def _run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=_seed, default=1, help="root seed (default: 1)")
    parser.add_argument(
        "--sim-wire", action="store_true", help="send every message through the codec"
    )
    _spark_options(parser)


def _spark_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--no-spark", action="store_true", help="judge in this process instead of a Spark job"
    )
    parser.add_argument("--spark-master", default="local[2]", help="(default: %(default)s)")
    parser.add_argument(
        "--spark-conf", action="append", default=[], metavar="K=V", help="repeatable"
    )


def _seed_options(parser: argparse.ArgumentParser, default: int) -> None:
    parser.add_argument(
        "--seeds", type=_number, default=default, help="how many (default: %(default)s)"
    )
    parser.add_argument("--first-seed", type=_seed, default=0, help="(default: %(default)s)")
    _spark_options(parser)


def _number(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return number


def _seed(text: str) -> int:
    try:
        return check_seed(int(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _refuse_unknown(
    parser: argparse.ArgumentParser, options: argparse.Namespace, unknown: list[str]
) -> NoReturn:
    chosen: argparse.ArgumentParser = getattr(options, "parser", parser)
    misplaced = [word for word in unknown if word.split("=")[0] in chosen._option_string_actions]
    if misplaced:
        chosen.error(f"{misplaced[0]} goes after the command")
    chosen.error(f"unrecognized arguments: {' '.join(unknown)}")


def _failure(error: Exception) -> int:
    """An error nobody foresaw: a harness failure, told in one line; the traceback goes to a file."""
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile(
        "w", prefix="laststand-", suffix=".traceback", delete=False, encoding="utf-8"
    ) as file:
        traceback.print_exc(file=file)
    print(
        f"laststand: harness failure: {type(error).__name__}: {error} (traceback in {file.name})",
        file=sys.stderr,
    )
    return exit_codes.FAILURE


if __name__ == "__main__":
    sys.exit(main())
