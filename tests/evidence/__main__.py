"""Judges more cases of a kind, or prints how many were judged.

`python -m tests.evidence elections --count 20000` continues after the last case that the ledger has and adds what
it found, so that several machines and days add up: `tests/evidence/ledger.jsonl` belongs in the commit.
`python -m tests.evidence --report` prints the table. An entry belongs to the text of the code that was judged;
cases of earlier texts are counted on their own.
"""

import argparse
import multiprocessing
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat

from rich.console import Console
from rich.table import Table

from harness.campaigns.forked import end_with_parent
from tests.evidence.cases import AS_ON_DISKS, UNTESTED, Cases
from tests.evidence.kinds import KINDS, judge
from tests.evidence.known_finding import KNOWN_FINDINGS
from tests.evidence.ledger import Entry, add, entries
from tests.evidence.meaning import digest

CHUNKS_PER_PROCESS = 10


def main(arguments: list[str] | None = None) -> int:
    """Judges cases, or prints the table; 1 if a case is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.evidence", description=__doc__)
    parser.add_argument("kind", nargs="?", choices=[*KINDS, ""], default="")
    parser.add_argument("--count", type=int, default=10_000, help="how many cases more")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes")
    parser.add_argument("--report", action="store_true", help="print what was judged so far")
    options = parser.parse_args(arguments)
    if options.report or not options.kind:
        return report(entries())
    return gather(options.kind, options.count, options.jobs)


def gather(kind_id: str, count: int, jobs: int = 1) -> int:
    """Judges `count` cases that no entry has, in some processes; returns 1 if one of them is wrong."""
    kind = KINDS[kind_id]
    wrong = done = 0
    began = time.monotonic()
    start = max((one.stop for one in entries() if one.kind == kind_id), default=0)
    firsts = range(start, start + count, kind.chunk)
    sizes = [min(kind.chunk, start + count - first) for first in firsts]
    # In the order of the cases, so that what an interruption leaves has no gaps.
    for at, size, cases in judged(kind_id, list(zip(firsts, sizes, strict=True)), jobs):
        add(kind_id, kind, at, size, cases)
        for line in cases.wrong:
            print(line, flush=True)
        wrong += len(cases.wrong)
        done += size
        rate = done / (time.monotonic() - began)
        print(f"{kind_id}: {done} of {count}, {rate:.1f}/s, {wrong} wrong", file=sys.stderr)
    return 1 if wrong else 0


def judged(
    kind_id: str, chunks: list[tuple[int, int]], jobs: int
) -> Iterator[tuple[int, int, Cases]]:
    """Yields what each chunk of cases showed, with its first case and its size, in order."""
    context = multiprocessing.get_context("spawn")
    # Runs leave memory behind in their process, 2.4 MB each of the control runs, so processes do not live long.
    size_of_group = CHUNKS_PER_PROCESS * jobs
    for at in range(0, len(chunks), size_of_group):
        group = chunks[at : at + size_of_group]
        with ProcessPoolExecutor(jobs, context, end_with_parent, (signal.SIGKILL,)) as pool:
            found = pool.map(judge, repeat(kind_id), *zip(*group, strict=True))
            for (first, size), cases in zip(group, found, strict=True):
                yield first, size, cases


def report(kept: list[Entry]) -> int:
    """Prints what was judged; returns 1 if a case is wrong with the present text."""
    table = Table(
        "kind",
        "cases",
        "wrong",
        "unknown",
        "untested",
        "lost, as on disks",
        "known finding",
        "earlier texts",
        "wrong then",
    )
    for column in table.columns[1:]:
        column.justify = "right"
    wrong = 0
    reasons: list[str] = []
    for kind_id, kind in KINDS.items():
        text = digest(kind.parts)
        now = [one for one in kept if (one.kind, one.text) == (kind_id, text)]
        before = [one for one in kept if one.kind == kind_id and one not in now]
        wrong += sum(len(one.wrong) for one in now)
        unknown: Counter[str] = Counter()
        for one in now:
            unknown.update(one.unknown)
        # What ran stands before the reason.
        untested, lost, known = (
            sum(count for reason, count in unknown.items() if reason.endswith(end))
            for end in (UNTESTED, AS_ON_DISKS, tuple(one.reason for one in KNOWN_FINDINGS))
        )
        reasons += [f"{kind_id}: {count} times {reason}" for reason, count in unknown.items()]
        table.add_row(
            f"{kind_id}: {kind.title}",
            *(
                f"{number:,}"
                for number in (
                    sum(one.count for one in now),
                    sum(len(one.wrong) for one in now),
                    unknown.total() - untested - lost - known,
                    untested,
                    lost,
                    known,
                    sum(one.count for one in before),
                    sum(len(one.wrong) for one in before),
                )
            ),
        )
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(table)
    for line in [*reasons, *(text for one in kept for text in one.wrong)]:
        console.print(line, markup=False, highlight=False)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
