"""`python -m tests.fuzz segments|frames|tcp --count N --seed S`: sends hostile bytes and reports what broke.

Deterministic: the same seed and count give the same cases, and a case that fails is printed as hexadecimal
together with the command that repeats it. Exit code 0: nothing broke; 1: something did.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator

from tests.fuzz import frames, segments, tcp
from tests.fuzz.report import Finding

KINDS: dict[str, Callable[[int, int], Iterator[Finding | None]]] = {
    "segments": segments.run,
    "frames": frames.run,
    "tcp": tcp.run,
}
FINDINGS_MAX = 10


def main(arguments: list[str] | None = None) -> int:
    """Runs one kind of fuzzing and prints what it found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    began = output = time.monotonic()
    findings = []
    done = 0
    for finding in KINDS[options.kind](options.seed, options.count):
        done += 1
        if finding is not None:
            findings.append(finding)
            print(f"case {finding.case}: {finding.what}\n  {finding.data[:2000]}", flush=True)
            if len(findings) >= FINDINGS_MAX:
                break
        now = time.monotonic()
        if now - output > 10:
            output = now
            rate = done / (now - began)
            print(f"{done} of {options.count}, {rate:.0f}/s", file=sys.stderr, flush=True)
    elapsed = time.monotonic() - began
    print(
        f"{options.kind}: {done} cases in {elapsed:.0f} s ({done / elapsed:.0f}/s), "
        f"seed {options.seed}, {len(findings)} findings"
    )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
