"""franz-go's own test of transactions, TestTxnEtl, on the reference system.

Chains of consumer groups read a topic that a transactional producer writes. They pass the records on in
transactions with the positions of their group, while members join and leave. There are classic groups and those of
KIP-848, with and without static members. The test fails if a record is missing, out of order or there twice.
"""

import os
import subprocess

import pytest
from foreign_clients import BUILD_LIMIT_S, LANGUAGES, client_or_skip, run_build
from wire_helpers import SharedCluster

RECORDS = 5000
PARTITIONS_MAX = 7
"""Otherwise topics have up to 31. Half a minute is enough on an idle machine, six minutes on a busy one."""
LIMIT_S = 900
pytestmark = [
    pytest.mark.wire,
    pytest.mark.long,
    pytest.mark.xdist_group("applications"),
    pytest.mark.timeout(2 * BUILD_LIMIT_S + LIMIT_S + 60),
]
PACKAGE = "github.com/twmb/franz-go/pkg/kgo"
CASES = 6
(GO,) = (language for language in LANGUAGES if language.name == "go")


def test_the_transaction_test_of_franz_go_passes(steady_cluster: SharedCluster) -> None:
    client = client_or_skip(GO)
    program = client.directory / "kgo.test"
    if not program.exists():
        # The version that the lock file of our own client names; its tests need no other modules.
        run_build(
            GO, client.directory, ("go", "test", "-c", "-mod=readonly", "-o", program.name, PACKAGE)
        )
    done = subprocess.run(
        [program, "-test.run=^TestTxnEtl$", "-test.v", f"-test.timeout={LIMIT_S}s"],
        cwd=client.directory,
        env={
            **os.environ,
            "KGO_SEEDS": steady_cluster.bootstrap,
            "KGO_TEST_RF": "3",
            "KGO_TEST_RECORDS": str(RECORDS),
            "KGO_TEST_MAX_TOPIC_PARTS": str(PARTITIONS_MAX),
            "KGO_LOG_LEVEL": "none",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S + 30,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert done.stdout.count("--- PASS: TestTxnEtl/") == CASES
    assert "--- SKIP" not in done.stdout
