"""`laststand explain`: prints why a run has its verdict, anomaly by anomaly."""

import argparse
from difflib import get_close_matches
from typing import TYPE_CHECKING

from harness import exit_codes
from harness.cli.options import Subcommands, add_command, add_run_argument
from harness.cli.output import print_json, show
from harness.cli.runs import command_for, open_store
from harness.errors import HistoryError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from results.report.argument import Argument
    from results.report.run import RunData


def add_parser(commands: Subcommands) -> None:
    """Adds the command."""
    parser = add_command(
        commands,
        "explain",
        explain,
        "print why a run has its verdict: witnesses, decisive moment, rule",
    )
    add_run_argument(parser)
    parser.add_argument(
        "anomaly",
        nargs="?",
        metavar="ANOMALY",
        help="the anomalies to explain, for example lost-acked-write (default: the most important one)",
    )


def explain(options: argparse.Namespace) -> int:
    """Prints the argument for one kind of anomaly, or for the most important anomaly."""
    from harness.runs.outcomes import stored_verdict
    from results.report.argument import arguments_of
    from results.report.run import RunData
    from results.report.story import find_losses

    store = open_store(options)
    directory = store.find(options.run)
    run = RunData(directory)
    if run.verdict is None:
        raise HistoryError(
            f"{directory} was not judged; `{command_for(options, directory, 'check')}` does it"
        )
    stored_verdict(directory)
    found = arguments_of(run, find_losses(run))
    chosen = _chosen(found, options.anomaly)
    if options.json:
        print_json(
            {
                "run": run.id,
                "verdict": run.verdict.get("validity"),
                "anomalies": [one.to_json() for one in chosen],
            }
        )
    else:
        rest = [] if options.anomaly else [one for one in found if one not in chosen]
        again = command_for(options, directory, "explain", *(one.id for one in rest[:1]))
        progress = _progress(run, chosen, command_for(options, directory, "replay"))
        show(*_parts(run, chosen), *progress, *_others(rest, again))
    return exit_codes.VALID


def _chosen(found: "Sequence[Argument]", anomaly: str | None) -> "list[Argument]":
    """Returns the anomalies to explain.

    Raises:
        UsageError: The run has no such anomaly.
    """
    if anomaly is None:
        return list(found[:1])
    chosen = [one for one in found if one.id == anomaly]
    if chosen:
        return chosen
    names = list(dict.fromkeys(one.id for one in found))
    near = get_close_matches(anomaly, names, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    known = ", ".join(names) or "none at all"
    raise UsageError(f"the run has no anomaly {anomaly!r}{hint} (it has: {known})")


def _parts(run: "RunData", chosen: "Sequence[Argument]") -> "Iterator[RenderableType]":
    from results.report.terminal import verdict_lines
    from results.tables import line

    assert run.verdict is not None
    validity = str(run.verdict.get("validity", "unknown"))
    yield from verdict_lines(validity, [run.id])
    for reason in run.verdict.get("reasons", ()) if not chosen else ():
        yield line(f"  {reason}")
    if not chosen:
        yield line("")
        yield line("The checkers found no anomaly.")
    for one in chosen:
        yield from _argument(one)


def _argument(one: "Argument") -> "Iterator[RenderableType]":
    from results.report.run import seconds
    from results.tables import line, table

    yield line("")
    yield line(f"{one.id} in {one.place} ({one.count})", "bold red" if one.is_forbidden else "bold")
    rows = [("definition", one.definition)] if one.definition else []
    rows += [("here", one.sentence)]
    for place, witness in enumerate(one.witnesses):
        label = "witnesses" if place == 0 else ""
        rows.append((label, f"operation {witness.op_index}: {witness.text}"))
    if one.moment is not None:
        rows.append(("decisive", f"{one.moment.title} at {seconds(one.moment.at_ns)}"))
        rows += [("", text) for text in one.moment.lines]
    rows.append(("judgement", one.why))
    for place, text in enumerate(one.otherwise):
        rows.append(("otherwise" if place == 0 else "", text))
    yield table(("what", "text"), rows, header=False, folding={"text"})


def _progress(
    run: "RunData", chosen: "Sequence[Argument]", command: str
) -> "Iterator[RenderableType]":
    """Yields how a run that recovered too late or not at all compares with its seed without faults."""
    from harness.runs.recovery import LATE
    from results.tables import line

    if not any(one.id in LATE for one in chosen):
        return
    yield line("")
    sentence = run.fact("recovery", "")
    if sentence:
        yield line(f"recovery: {sentence}")
    yield line(f"repeat the run: {command}")


def _others(rest: "Sequence[Argument]", command: str) -> "Iterator[RenderableType]":
    from results.tables import line, table

    if not rest:
        return
    yield line("")
    yield line("Other anomalies:")
    rows = [(one.id, one.place, str(one.count), one.judgement) for one in rest]
    yield table(("anomaly", "where", "count", "judgement"), rows, right={"count"})
    yield line("")
    yield line(f"next  {command}")
