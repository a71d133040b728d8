"""Histories that Porcupine, Knossos, Elle and elle-cli publish, and the verdicts they publish for them.

Those of Porcupine, Elle and elle-cli are in `tests/data/published`, some of them compressed. For Knossos,
`LASTSTAND_PUBLISHED_HISTORIES` names a directory with a checkout of each project, under the name in `PROJECTS`;
then the histories of all projects come from there, and those in this repository must be the same.

Where we differ on purpose: a history in which no operation was ok is "unknown", because nothing was tested.
Knossos calls such a history valid.
"""

import gzip
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from harness.history.foreign.edn import read_one
from harness.history.foreign.read import read_history
from harness.runs.foreign import JudgeOptions, judge_foreign
from harness.runs.foreign_models import NOT_STATED, ModelOptions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

VARIABLE = "LASTSTAND_PUBLISHED_HISTORIES"
INCLUDED = Path(__file__).parents[3] / "data" / "published"
COMPRESSED = ".gz"
NOT_INCLUDED = frozenset({"knossos"})
"""Projects of which no history is in this repository."""
LONG = frozenset({"porcupine/test_data/kv/c50-bad.txt"})
"""What takes minutes."""

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
CHECKOUTS = Path(os.environ[VARIABLE]) if VARIABLE in os.environ else None


def _included(path: str) -> Path:
    """Returns where a history is in this repository, if it is."""
    plain = INCLUDED / path
    return plain if plain.exists() else plain.with_name(plain.name + COMPRESSED)


def _project(path: str) -> str:
    return path.partition("/")[0]


FOUND = [one for one in ALL if CHECKOUTS is not None or _included(one.path).exists()]


def _case(published: Published) -> ParameterSet:
    name = f"{published.path}-{published.promise}" if published.promise else published.path
    return pytest.param(
        published, id=name, marks=[pytest.mark.long] if published.path in LONG else []
    )


def test_every_history_of_porcupine_and_elle_is_in_this_repository() -> None:
    expected = {one.path for one in ALL if _project(one.path) not in NOT_INCLUDED}
    stored = {
        path.relative_to(INCLUDED).as_posix().removesuffix(COMPRESSED)
        for path in INCLUDED.rglob("*")
        if path.is_file() and path.stem not in ("LICENSE", "README")
    }
    assert stored == expected
    assert len(expected) == 114


@pytest.mark.parametrize("project", sorted(PROJECTS.keys() - NOT_INCLUDED))
def test_the_licence_is_beside_the_histories(project: str) -> None:
    (licence,) = (INCLUDED / project).glob("LICENSE*")
    name = {"MIT": "The MIT License", "EPL 2.0": "Eclipse Public License - v 2.0"}
    _, _, short = PROJECTS[project].partition(", ")
    assert licence.read_text(encoding="utf-8").startswith(name[short])
    assert PROJECTS[project].split(" ")[1].removesuffix(",") in (INCLUDED / "README.md").read_text(
        encoding="utf-8"
    )


def test_compressed_histories_have_no_time_and_no_name() -> None:
    compressed = sorted(INCLUDED.rglob(f"*{COMPRESSED}"))
    assert compressed
    for path in compressed:
        # RFC 1952: byte 3 has the flags, bytes 4 to 7 the time.
        assert path.read_bytes()[3:8] == bytes(5), path


def test_the_histories_in_this_repository_are_unchanged() -> None:
    if CHECKOUTS is None:
        pytest.skip(
            f"{len(ALL) - len(FOUND)} histories of {', '.join(sorted(NOT_INCLUDED))} are not in this repository;"
            f" {VARIABLE} names a directory with checkouts of {', '.join(PROJECTS)}"
        )
    for one in ALL:
        if _project(one.path) in NOT_INCLUDED:
            continue
        stored = _included(one.path)
        raw = stored.read_bytes()
        content = gzip.decompress(raw) if stored.suffix == COMPRESSED else raw
        assert content == (CHECKOUTS / one.path).read_bytes(), one.path


@pytest.mark.parametrize("published", [_case(one) for one in FOUND])
def test_a_published_history_gets_its_published_verdict(published: Published) -> None:
    path = _included(published.path) if CHECKOUTS is None else CHECKOUTS / published.path
    history = read_history(path, model=published.model)
    options = JudgeOptions(
        model=ModelOptions(
            initial=read_one(published.initial) if published.initial else NOT_STATED,
            time_limit_s=300,
        ),
        promise=published.promise,
    )
    judged = judge_foreign(history, options)
    assert history.problems.count == 0
    assert str(judged.verdict.validity) == published.verdict, published.source
