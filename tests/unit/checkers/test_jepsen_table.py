"""The table of Jepsen's anomalies names anomalies and tests that exist."""

import re
from pathlib import Path

from checkers.anomalies import ANOMALIES

ROOT = Path(__file__).parents[3]
TABLE = (ROOT / "docs/jepsen-kafka-anomalies.md").read_text()

JEPSEN = [
    "inconsistent-offsets",
    "duplicate",
    "G1a",
    "precommitted-read",
    "lost-write",
    "poll-skip",
    "nonmonotonic-poll",
    "int-poll-skip",
    "int-nonmonotonic-poll",
    "int-send-skip",
    "int-nonmonotonic-send",
    "nonmonotonic-send",
    "unseen",
    "G0",
    "G0-realtime",
    "G1c",
    "G1c-realtime",
    "PL-1-cycle-exists",
    "PL-2-cycle-exists",
    "strong-PL-1-cycle-exists",
    "strong-PL-2-cycle-exists",
    "cycle-search-timeout",
    "empty-transaction-graph",
]
NO_ANOMALIES = (
    "read_committed",
    "read_uncommitted",
    "check_log_transactions",
    "[workload] fetches_per_poll_max",
    "laststand check history.edn",
    "transactions",
    "transaction_events",
    "txn",
    "ok",
    "info",
    "fail",
)


def test_every_anomaly_of_jepsen_has_a_row() -> None:
    first_cells = " ".join(
        line.split("|")[1] for line in TABLE.splitlines() if line.startswith("|")
    )
    words = set(re.split(r"[\s,]+", first_cells))
    assert set(JEPSEN) - words == set()


def test_every_name_in_the_table_exists() -> None:
    names = {name for name in re.findall(r"`([^`]+)`", TABLE) if name not in NO_ANOMALIES}
    tests = {name for name in names if name.startswith("test_")}
    files = {name for name in names if "/" in name or name.endswith(".py")}
    assert names - tests - files - ANOMALIES.keys() == set()
    sources = "".join(path.read_text() for path in (ROOT / "tests/unit/checkers").glob("test_*.py"))
    assert {name for name in tests if f"def {name}(" not in sources} == set()
    assert {
        name
        for name in files
        if name != "jepsen/tests/kafka.clj"
        and not (ROOT / name).exists()
        and not (ROOT / "checkers/kernels" / name).exists()
    } == set()
