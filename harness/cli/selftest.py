"""`laststand check --selftest`: shows which planted anomalies the checkers find in a stored run."""

import argparse
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from harness import exit_codes
from harness.cli.output import print_json, show
from harness.cli.progress import StandardErrorProgress


def self_test_run(options: argparse.Namespace, directory: Path) -> int:
    """Plants anomalies into copies of a run and prints what was found.

    Returns:
        VALID if every planted anomaly was found, INVALID if one was missed, UNKNOWN if none could be planted.
    """
    from checkers.anomalies import ANOMALIES
    from checkers.selftest import Outcome, self_test
    from harness.runs.judge import stored_context
    from results.history_files import read_tables
    from results.tables import line, table

    results = []
    with StandardErrorProgress(quiet=options.quiet) as progress:
        for result in self_test(read_tables(directory), stored_context(directory)):
            results.append(result)
            progress.update("planting anomalies", len(results) / len(ANOMALIES), result.anomaly)
    counts = Counter(result.outcome for result in results)
    if options.json:
        print_json(
            {
                "directory": str(directory),
                **{str(name): count for name, count in counts.items()},
                "plants": [asdict(each) for each in results],
            }
        )
    else:
        rows = [(each.anomaly, each.outcome, each.what, each.detail) for each in results]
        show(
            table(
                ("planted", "result", "what was changed", "found, or why not planted"),
                rows,
                folding=("what was changed", "found, or why not planted"),
            ),
            line(""),
            line(", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome)),
        )
    if counts[Outcome.MISSED]:
        return exit_codes.INVALID
    return exit_codes.VALID if counts[Outcome.FOUND] else exit_codes.UNKNOWN
