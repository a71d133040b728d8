"""The list of marks is complete, and none of them is never reported."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.documents.registry import ROOT
from harness.errors import UsageError
from nemesis.trigger import check_mark
from system_under_test.runtime.marks import MARKS

PACKAGE = ROOT / "system_under_test"


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        if path != PACKAGE / "runtime" / "marks.py":
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def test_every_mark_that_is_written_in_the_code_is_listed() -> None:
    for path, tree in trees():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            function = ast.unparse(node.func).rpartition(".")[2].lstrip("_")
            name = node.args[0]
            if function in ("mark", "marks") and isinstance(name, ast.Constant):
                assert name.value in MARKS, f"{path.name}, line {node.lineno}"


def test_every_listed_mark_is_in_the_code() -> None:
    strings = {
        node.value
        for _, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert set(MARKS) <= strings
    assert list(MARKS) == sorted(MARKS)


def test_a_trigger_with_a_misspelt_mark_is_refused() -> None:
    check_mark("elected-from-elr", MARKS)
    with pytest.raises(UsageError, match="did you mean 'elected-from-elr'"):
        check_mark("elected-from-erl", MARKS)
