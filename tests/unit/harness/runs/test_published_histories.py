"""Histories that Porcupine, Knossos, Elle and elle-cli publish, and the verdicts they publish for them.

Four files of Porcupine are in `tests/data/published`. For the others, `LASTSTAND_PUBLISHED_HISTORIES` names a
directory with a checkout of each project, under the name in `PROJECTS`; without it they are left out.

Where we differ on purpose: a history in which no operation was ok is "unknown", because nothing was tested.
Knossos calls such a history valid.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.history.foreign.edn import read_one
from harness.history.foreign.read import read_history
from harness.runs.foreign import JudgeOptions, judge_foreign
from harness.runs.foreign_models import ModelOptions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

VARIABLE = "LASTSTAND_PUBLISHED_HISTORIES"
INCLUDED = Path(__file__).parents[3] / "data" / "published"

PROJECTS = {
    "porcupine": "github.com/anishathalye/porcupine 55508eb201b314c218d7e8412c3ea4b9499a5f53, MIT",
    "knossos": "github.com/jepsen-io/knossos 9b2c79e93c601fff49d7886963cc4fd7b61b728d, EPL 1.0",
    "elle": "github.com/jepsen-io/elle ccdee6fab6c816a605ed24f72723747af054adf8, EPL 2.0",
    "elle-cli": "github.com/ligurio/elle-cli 0e3fd6ea923f8c2f1ee89f153e0e413530b1fa43, EPL 2.0",
}
"""Where the histories are published: repository, commit and licence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One history.

    Attributes:
        path: Project and path inside of it.
        verdict: What is published.
        source: Where.
        model: What judges it; empty for what its functions show.
        initial: The initial value as EDN; empty if it is not stated.
        promise: The isolation level.
    """

    path: str
    verdict: str
    source: str
    model: str = ""
    initial: str = ""
    promise: str = ""


ETCD_VALID = frozenset(
    [2, 5, 7, 18, 25, 31, 38, 45, 48, 49, 51, 53, 56, 67, 75, 76, 80, 87, 92, 98, 100, 101, 102]
)
"""The numbers for which porcupine_test.go expects a linearizable history; it leaves out 95, an empty file."""

PORCUPINE = [
    *(
        Published(
            path=f"porcupine/test_data/jepsen/etcd_{number:03d}.log",
            verdict="valid" if number in ETCD_VALID else "invalid",
            source="porcupine_test.go, TestEtcdJepsen",
            model="cas-register",
        )
        for number in range(103)
        if number != 95
    ),
    *(
        Published(
            path=f"porcupine/test_data/kv/{name}.txt",
            verdict="valid" if name.endswith("ok") else "invalid",
            source="porcupine_test.go, TestKv",
        )
        for name in ("c01-ok", "c01-bad", "c10-ok", "c10-bad", "c50-ok", "c50-bad")
    ),
]

NOTHING_OK = ("mongodb-v0-ack-rollback-", *(f"mongodb-v0-ack-rollback-{n}" for n in (9, 10, 11)))
"""Histories without an operation that was ok; Knossos calls them valid."""

KNOSSOS = [
    Published(
        path=f"knossos/data/cas-register/{folder}/{name}.edn",
        verdict="unknown" if name in NOTHING_OK else verdict,
        source="core_test.clj, test-examples",
        model="cas-register",
        initial="0",
    )
    for folder, verdict, names in (
        (
            "good",
            "valid",
            (
                "cas-register-bug",
                *(f"memstress3-{number}" for number in range(100)),
                *(f"mongodb-v0-ack-rollback-{number}" for number in (0, 1, 2, 3, 4, 5, 7, 8)),
                *NOTHING_OK,
            ),
        ),
        (
            "bad",
            "invalid",
            (
                "bad-analysis",
                "cas-failure",
                "immediate-failure",
                "mongodb-v0-ack-rollback-6",
                "rethink-fail",
                "rethink-fail-minimal",
                "rethink-fail-smaller",
            ),
        ),
    )
    for name in names
]

ELLE = [
    Published(
        path="elle/histories/paper-example.edn",
        verdict="invalid",
        source="elle-cli, test.sh, where the same history has processes",
    ),
    *(
        Published(
            path="elle/histories/si-without-g-single.edn",
            verdict=verdict,
            source="list_append_test.clj, intermediate-sequential-extension-test: only G2-item",
            promise=promise,
        )
        for promise, verdict in (("snapshot-isolation", "valid"), ("serializable", "invalid"))
    ),
    Published(
        path="elle/histories/huge-scc.edn",
        verdict="invalid",
        source="list_append_test.clj, huge-scc-test",
    ),
    Published(
        path="elle-cli/histories/elle/paper-example.edn", verdict="invalid", source="test.sh"
    ),
    Published(
        path="elle-cli/histories/elle/list-append-gh-30.edn",
        verdict="invalid",
        source="test.sh",
        promise="serializable",
    ),
    Published(path="elle-cli/histories/jepsen/set.edn", verdict="valid", source="test.sh"),
]


ALL = [*PORCUPINE, *KNOSSOS, *ELLE]
ROOT = Path(os.environ.get(VARIABLE, INCLUDED))
FOUND = [one for one in ALL if VARIABLE in os.environ or (ROOT / one.path).exists()]


def test_every_published_history_is_there() -> None:
    assert len(FOUND) >= 4
    if len(FOUND) < len(ALL):
        pytest.skip(
            f"{len(ALL) - len(FOUND)} published histories are not in this repository;"
            f" {VARIABLE} names a directory with checkouts of {', '.join(PROJECTS)}"
        )


@pytest.mark.parametrize(
    "published",
    FOUND,
    ids=lambda one: f"{one.path}-{one.promise}" if one.promise else one.path,
)
def test_a_published_history_gets_its_published_verdict(published: Published) -> None:
    history = read_history(ROOT / published.path, model=published.model)
    options = JudgeOptions(
        model=ModelOptions(
            initial=read_one(published.initial) if published.initial else None, time_limit_s=300
        ),
        promise=published.promise,
    )
    judged = judge_foreign(history, options)
    assert history.problems.count == 0
    assert str(judged.verdict.validity) == published.verdict, published.source
