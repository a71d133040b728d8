"""Runs the tests that failed just now again, if only tests of real processes failed.

    python -m tests.failed_again

Real processes share a machine with other tests, and what they show depends on time. One that fails beside others
and passes alone is named in the output, as unstable, and does not stop a build. Everything else is deterministic:
there a second attempt would only hide an error, so none is made.

Exit codes: 0 every one passed alone, 1 something failed again or must not be run again.
"""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

CACHE = Path(".pytest_cache/v")
LAST_FAILED = CACHE / "cache/lastfailed"
EXIT_STATUS = CACHE / "laststand/exit_status"
"""Written by `tests/conftest.py` when a session ends."""
REAL = (
    "tests/wire/",
    "tests/containers/",
    "tests/cli/test_kill_anytime.py",
    "tests/cli/test_nightly.py",
    "tests/cli/test_remote_stores.py",
    "tests/cli/test_resumed_campaigns.py",
    "tests/cli/test_signals.py",
    "tests/unit/harness/systems/apache_kafka/test_kafka_events.py",
)
"""Real processes, and tasks that follow real time."""
AGAIN_MAX = 5
"""With more failures something is wrong with the product or the machine, not with a test."""


def refusal(failed: Sequence[str], exit_status: int | None) -> str:
    """Returns why these tests are not run again; "" if they are.

    Args:
        failed: Their node ids.
        exit_status: With which pytest ended; None if it did not run to its end.
    """
    if exit_status != pytest.ExitCode.TESTS_FAILED or not failed:
        return "the tests were not run to their end, or the failure lies elsewhere"
    decided = [test for test in failed if not test.startswith(REAL)]
    if decided:
        return f"{decided[0]} does not depend on time, so its failure counts"
    if len(failed) > AGAIN_MAX:
        return f"{len(failed)} tests failed; at most {AGAIN_MAX} are run again"
    return ""


def without_group(node_id: str) -> str:
    """Returns a node id without the group that pytest-xdist adds to it."""
    return re.sub(r"@[\w-]+$", "", node_id)


def main() -> int:
    """Runs them."""
    failed = sorted(map(without_group, _cached(LAST_FAILED) or ()))
    reason = refusal(failed, _cached(EXIT_STATUS))
    if reason:
        print(f"not run again: {reason}")
        return 1
    command = [sys.executable, "-m", "pytest", "-p", "no:randomly", *failed]
    if subprocess.run(command, check=False).returncode:
        return 1
    print("\nunstable: failed beside other tests, passed alone:", *failed, sep="\n  ")
    return 0


def _cached(path: Path) -> Any:
    """Returns what pytest has in its cache; None if it has nothing there."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())
