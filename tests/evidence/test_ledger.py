"""The ledger adds up, and a result belongs to the text of the code that gave it."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.evidence import kinds, ledger, meaning
from tests.evidence.cases import Cases
from tests.evidence.kinds import KINDS, ROOT, Kind

KIND = replace(KINDS["log-levels"], parts=("part",))


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with one module, in place of the repository."""
    monkeypatch.setattr(meaning, "ROOT", tmp_path)
    path = tmp_path / "part" / "module.py"
    path.parent.mkdir()
    path.write_text("LIMIT = 1\n")
    return path


def add(path: Path, first: int, count: int, cases: Cases, kind: Kind = KIND) -> None:
    ledger.add("log-levels", kind, first, count, cases, path)


def test_cases_that_continue_an_entry_are_added_to_it(module: Path, tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    add(path, 0, 10, Cases(unknown={"why": 1}))
    add(path, 10, 5, Cases(wrong=["11: differs"], unknown={"why": 2}))
    (entry,) = ledger.entries(path)
    assert (entry.first, entry.count, entry.wrong) == (0, 15, ["11: differs"])
    assert entry.unknown == {"why": 3}


def test_a_changed_constant_begins_a_new_entry_and_a_comment_does_not(
    module: Path, tmp_path: Path
) -> None:
    path = tmp_path / "ledger.jsonl"
    add(path, 0, 10, Cases())
    module.write_text('"""Says more."""\n\nLIMIT = 1  # and why\n\n"And says it twice."\n')
    add(path, 10, 10, Cases())
    assert [entry.count for entry in ledger.entries(path)] == [20]
    module.write_text("LIMIT = 2\n")
    add(path, 20, 10, Cases())
    assert [entry.count for entry in ledger.entries(path)] == [20, 10]


def test_a_part_can_leave_out_a_folder(module: Path) -> None:
    inner = module.parent / "real" / "module.py"
    inner.parent.mkdir()
    inner.write_text("LIMIT = 1\n")
    whole, without = meaning.digest(("part",)), meaning.digest(("part", "!part/real"))
    inner.write_text("LIMIT = 2\n")
    assert meaning.digest(("part",)) != whole
    assert meaning.digest(("part", "!part/real")) == without


def test_the_runs_that_are_judged_call_nothing_that_is_left_out() -> None:
    program = """
import inspect, json, sys
import tests.evidence.kinds
called = set()
def note(frame, event, argument):
    code = frame.f_code
    # Neither modules nor bodies of classes: to import something is not to call it.
    if event == "call" and code.co_flags & inspect.CO_OPTIMIZED:
        called.add(code.co_filename)
sys.setprofile(note)
tests.evidence.kinds.judge("seconds", 0, 2)
sys.setprofile(None)
print(json.dumps(sorted(called)))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    called = json.loads(ran.stdout)
    parts = KINDS["seconds"].parts
    left_out = tuple(str(ROOT / part[1:]) for part in parts if part.startswith("!"))
    counted = {str(path) for path in meaning.modules_of(parts)}
    assert left_out
    assert [one for one in called if one.startswith(left_out) and one not in counted] == []
    assert str(ROOT / "system_under_test" / "broker" / "fetch.py") in counted & set(called)
    assert str(ROOT / "checkers" / "kernels" / "linearizability.py") in counted & set(called)


def test_a_module_counts_with_what_it_imports_and_nothing_else(module: Path) -> None:
    module.with_name("entry.py").write_text("from part.module import LIMIT\n")
    module.with_name("other.py").write_text("LIMIT = 1\n")
    before = meaning.digest(("part/entry.py",))
    module.with_name("other.py").write_text("LIMIT = 2\n")
    assert meaning.digest(("part/entry.py",)) == before
    module.write_text("LIMIT = 2\n")
    assert meaning.digest(("part/entry.py",)) != before


def test_a_broken_comparison_is_reported_as_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds.brute_force, "judge_accepts", lambda *_, **__: False)
    assert KINDS["log-levels"].judge(0, 20).wrong


@pytest.mark.parametrize("kind", ["log-levels", "elections", "declarations", "models"])
def test_a_few_cases_of_a_kind_are_right(kind: str) -> None:
    assert KINDS[kind].judge(0, 10) == Cases()
