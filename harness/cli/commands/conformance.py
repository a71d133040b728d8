"""`laststand conformance`: compares the reference system with Apache Kafka, response by response."""

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import exit_codes
from harness.cli.options import Subcommands, add_command
from harness.cli.output import print_json, show
from harness.cli.progress import StandardErrorProgress
from harness.errors import HarnessFailure, UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from harness.conformance.run import Conformance
    from harness.systems.apache_kafka.versions import Version


def add_parser(commands: Subcommands) -> None:
    """Adds the command."""
    parser = add_command(
        commands,
        "conformance",
        conformance,
        "send the same requests to the reference system and to Apache Kafka and compare the responses",
        stores_runs=False,
    )
    parser.add_argument(
        "--against",
        metavar="apache-kafka:VERSION",
        help="compare with this version, which `laststand system fetch` has downloaded",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PATTERN",
        help="send only requests whose id contains this text, or matches it if it has a *; can be repeated",
    )
    parser.add_argument(
        "--list", action="store_true", help="print the ids of all requests; starts nothing"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="write everything that was observed as JSON"
    )


def conformance(options: argparse.Namespace) -> int:
    """Compares both systems; 0 if every difference is expected, 1 otherwise."""
    from harness.conformance.run import chosen_cases, compare

    cases = chosen_cases(options.only)
    if options.list:
        ids = [case.id for _, case in cases]
        print_json({"requests": ids}) if options.json else print("\n".join(ids))
        return exit_codes.VALID
    version = _version(options.against)
    _check_writable(options.output)
    with StandardErrorProgress(quiet=options.quiet) as progress:
        result = compare(version, options.only, progress)
    if options.output is not None:
        _write(options.output, {**_summary(result), "cases": list(_cases(result))})
    if options.json:
        print_json(_summary(result))
    else:
        show(*_parts(result))
    return exit_codes.VALID if result.is_as_expected else exit_codes.INVALID


def _version(against: str | None) -> "Version":
    from harness.names import unknown_name
    from harness.systems.apache_kafka.versions import NAME, parse_version

    if against is None:
        raise UsageError(f"the option --against is required, for example {NAME}:4.1.2")
    name, separator, version = against.partition(":")
    if name != NAME:
        raise UsageError(unknown_name("system to compare with", name, [NAME]))
    if not separator:
        raise UsageError(f"--against {against} has no version, for example {NAME}:4.1.2")
    return parse_version(version)


def _check_writable(path: Path | None) -> None:
    """Raises `UsageError` before a minute of work if the file cannot be written afterwards."""
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise UsageError(f"--output {path} is no file in an existing directory")


def _write(path: Path, data: dict[str, Any]) -> None:
    try:
        path.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    except OSError as error:
        raise HarnessFailure(f"{path} cannot be written: {error.strerror}") from error


def _summary(result: "Conformance") -> dict[str, Any]:
    assessment = result.assessment
    return {
        "against": f"apache-kafka:{result.version}",
        "profile": result.profile,
        "cases": len(result.results),
        "requests": result.request_count,
        "same": sum(not one.differences for one in result.results),
        "expected": [
            {**_fields(difference), "reason": entry.reason}
            for difference, entry in assessment.expected
        ],
        "new": [_fields(difference) for difference in assessment.new],
        "gone": [
            {"request": entry.request, "field": entry.field, "reason": entry.reason}
            for entry in assessment.gone
        ],
        "elapsed_s": round(result.elapsed_s, 1),
    }


def _fields(difference: Any) -> dict[str, str]:
    return {
        name: getattr(difference, name)
        for name in ("request", "field", "apache_kafka", "reference")
    }


def _cases(result: "Conformance") -> Iterator[dict[str, Any]]:
    for one in result.results:
        yield {
            "id": one.case,
            "apache_kafka": [_observed(seen) for seen in one.apache_kafka],
            "reference": [_observed(seen) for seen in one.reference],
        }


def _observed(seen: Any) -> dict[str, Any]:
    return {"request": seen.request, "outcome": seen.outcome, "response": seen.response}


def _parts(result: "Conformance") -> "Iterator[RenderableType]":
    from results.tables import line, table

    assessment = result.assessment
    differing = {one.case for one in result.results if one.differences}
    yield line(
        f"Apache Kafka {result.version} and the reference system with profile {result.profile}: "
        f"{len(result.results)} cases, {result.request_count} requests, {result.elapsed_s:.0f} s"
    )
    yield line("")
    new_cases = {difference.request for difference in assessment.new}
    rows = [
        ("same", str(len(result.results) - len(differing)), "-"),
        (
            "expected difference",
            str(len(differing - new_cases)),
            str(len(assessment.expected)),
        ),
        ("NEW difference", str(len(new_cases)), str(len(assessment.new))),
        ("expected, no longer occurs", "-", str(len(assessment.gone))),
    ]
    yield table(("result", "cases", "fields"), rows, right={"cases", "fields"})
    if assessment.expected:
        yield line("")
        yield from _expected_parts(result)
    if assessment.new:
        yield line("")
        yield line("New differences:")
        yield table(
            ("request", "field", "Apache Kafka", "reference"),
            [
                (one.request, one.field, _cut(one.apache_kafka), _cut(one.reference))
                for one in assessment.new
            ],
            folding={"field", "Apache Kafka", "reference"},
        )
    if assessment.gone:
        yield line("")
        yield line("Expected differences that no longer occur; remove their entries:")
        yield table(
            ("request", "field", "reason"),
            [(entry.request, entry.field, entry.reason) for entry in assessment.gone],
            folding={"reason"},
        )


def _expected_parts(result: "Conformance") -> "Iterator[RenderableType]":
    """Yields the reasons of expected differences, with how many cases each explains."""
    from results.tables import line, table

    counts: Counter[str] = Counter()
    for reason, _ in {
        (entry.reason, difference.request) for difference, entry in result.assessment.expected
    }:
        counts[reason] += 1
    yield line("Reasons of expected differences:")
    yield table(
        ("cases", "reason"),
        [
            (str(count), reason)
            for reason, count in sorted(counts.items(), key=lambda one: (-one[1], one[0]))
        ],
        right={"cases"},
        folding={"reason"},
    )


SHOWN_CHARACTERS = 160
"""Of a value in the terminal; `--output` has the whole value."""


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."
