"""Parses a command line, runs the command, and turns whatever happens into an exit code.

Results go to standard output (text, or one JSON object with --json, also if the command fails), progress and
errors to standard error. Exit codes are an interface: 0 valid, 1 invalid, 2 unknown, 254 usage, 255 harness
failure. Every error that a user can cause is one sentence. SIGTERM does what SIGINT does: the command removes what
it made and ends with 255.
"""

import argparse
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, NoReturn

from harness import exit_codes
from harness.cli.commands import (
    broker,
    bundle,
    check,
    cluster,
    compare,
    completion,
    conformance,
    defects,
    demo,
    doctor,
    explain,
    gc,
    image,
    new,
    nightly,
    replay,
    report,
    reproduce,
    reset,
    run,
    serve,
    shrink,
    site,
    swarm,
    system,
    trace,
)
from harness.cli.commands import help as help_command
from harness.cli.commands import list as list_runs
from harness.cli.examples import examples_of
from harness.cli.options import GLOBAL_FLAGS, GLOBAL_OPTIONS, JSON_FLAG, CommandParser
from harness.cli.output import print_envelope
from harness.errors import HarnessError, HarnessFailure
from results.text import plain

COMMANDS = (
    reproduce,
    new,
    run,
    replay,
    check,
    explain,
    trace,
    report,
    list_runs,
    serve,
    site,
    compare,
    swarm,
    shrink,
    nightly,
    conformance,
    defects,
    demo,
    doctor,
    cluster,
    broker,
    bundle,
    image,
    system,
    reset,
    gc,
    completion,
    help_command,
)
"""The modules of all commands, in the order of the help."""

DESCRIPTION = """\
Inject faults into a replicated log and report which guarantees were broken.

Start with:  laststand reproduce last-replica-standing --profile kafka-4.0
"""


GLOBAL_HELP = """\
Before or after every command:  --json (one JSON object instead of text) and
--quiet (no progress).  Where it reads or stores runs:  --results DIR."""


LEAVE_S = 30.0
"""How long a process that has done everything may take to end."""


def console() -> NoReturn:
    """Runs the command line of this process, and ends the process with the exit code.

    A client library may block for ever in a call that has a timeout (librdkafka sometimes does), and Python waits
    for the thread. Everything is stored and printed by then.
    """
    code = main()
    guard = threading.Timer(LEAVE_S, os._exit, (code,))
    guard.daemon = True
    guard.start()
    sys.exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    with _sigterm_interrupts():
        return _main(arguments)


@contextlib.contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Makes SIGTERM, which CI systems send, act like SIGINT during the block."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set signal handlers
        return
    before = signal.signal(signal.SIGTERM, _terminated)
    is_ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN  # as in a shell's background job
    if is_ignored:
        # Blocked instead of ignored: asyncio cancels its tasks only if the default handler is installed.
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
    # Only once: `timeout` sends SIGTERM twice, and the second must not interrupt the cleanup. SIG_IGN would be
    # inherited by programs that are started during the cleanup.
    signal.signal(signal.SIGTERM, lambda *_: None)
    interrupt = signal.getsignal(signal.SIGINT)
    if callable(interrupt):
        interrupt(signal.SIGINT, frame)


def _main(arguments: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = build_parser()
    try:
        code, error = _attempt(parser, words)
        if error is not None:
            _complain(error)
        if JSON_FLAG in words:
            print_envelope(_command_of(parser, words), code, error)
    except BrokenPipeError:
        # The reader has exited (`laststand list | head`). Without this, Python reports the error again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.FAILURE
    return code


def _attempt(parser: CommandParser, words: list[str]) -> tuple[int, str | None]:
    """Runs a command; returns its exit code, and why it failed, in one sentence."""
    try:
        return _run(parser, words), None
    except HarnessError as error:
        return exit_codes.USAGE, str(error)
    except HarnessFailure as error:
        return exit_codes.FAILURE, f"harness failure: {error}"
    except KeyboardInterrupt:
        # Under `python -m`, Python exits with 130 after a KeyboardInterrupt that passed through exec(), even if it
        # was caught (dataclasses call exec). Another call of exec() clears that state.
        exec("")
        return exit_codes.FAILURE, "interrupted"
    except BrokenPipeError:
        raise
    except Exception as error:
        return exit_codes.FAILURE, _failure(error)


def _run(parser: CommandParser, words: list[str]) -> int:
    options, unknown = parser.parse_known_args(_global_options_last(parser, words))
    if unknown:
        chosen: CommandParser = getattr(options, "parser", parser)
        chosen.refuse_unknown(unknown)
    if not hasattr(options, "action"):
        options_parser: CommandParser = getattr(options, "parser", parser)
        options_parser.print_help()
        return exit_codes.USAGE
    code = int(options.action(options))
    sys.stdout.flush()
    return code


def _command_of(parser: CommandParser, words: list[str]) -> str:
    """Returns the words of the command in a command line, whatever else is wrong with it; "" if there is none."""
    _, rest = _split_front(words)
    command: list[str] = []
    while rest and parser.has_subcommand(rest[0]):
        command.append(rest.pop(0))
        parser = parser.subcommand(command[-1])
    return " ".join(command)


def _split_front(words: list[str]) -> tuple[list[str], list[str]]:
    """Returns the global options in front of the command, and the rest."""
    front: list[str] = []
    rest = list(words)
    while rest and (rest[0] in GLOBAL_FLAGS or rest[0].partition("=")[0] in GLOBAL_OPTIONS):
        takes_next = rest[0] in GLOBAL_OPTIONS
        front += rest[: 1 + takes_next]
        del rest[: 1 + takes_next]
    return front, rest


def _global_options_last(parser: CommandParser, words: list[str]) -> list[str]:
    """Returns the command line with the options in front of the command behind it, as its parser expects."""
    front, rest = _split_front(words)
    command: list[str] = []
    while rest and parser.has_subcommand(rest[0]):
        parser = parser.subcommand(rest[0])
        command.append(rest.pop(0))
    if not command:
        return words
    for word in front:
        if word.startswith("--") and not parser.has_option(word.partition("=")[0]):
            parser.refuse_unknown([word])
    return [*command, *front, *rest]


def build_parser() -> CommandParser:
    """Returns the parser of all commands."""
    parser = CommandParser(
        prog="laststand",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.epilog = f"{GLOBAL_HELP}\n\n{examples_of(parser.prog)}"
    parser.add_argument(
        "--version", action=_ShowVersion, nargs=0, help="print the version and exit"
    )
    # For `completion`, which describes all commands and cannot import this module.
    parser.set_defaults(root_parser=parser)
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=CommandParser)
    for module in COMMANDS:
        module.add_parser(commands)
    return parser


class _ShowVersion(argparse.Action):
    """Prints the version; reads it only when needed, because that takes as long as the rest of the start."""

    def __call__(
        self, parser: argparse.ArgumentParser, *_: Any, option_string: str | None = None
    ) -> None:
        from importlib.metadata import version

        print(f"laststand {version('laststand')}")
        parser.exit()


def _complain(sentence: str) -> None:
    # File contents and node names can be part of a message.
    print(f"laststand: {plain(' '.join(sentence.splitlines()))}", file=sys.stderr)


def _failure(error: Exception) -> str:
    """Returns an unexpected error in one line; its traceback goes to a file."""
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile(
        "w", prefix="laststand-", suffix=".traceback", delete=False, encoding="utf-8"
    ) as file:
        traceback.print_exc(file=file)
    return f"harness failure: {type(error).__name__}: {error} (traceback in {file.name})"
