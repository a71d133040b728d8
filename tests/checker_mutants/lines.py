"""Which lines of the mutated modules each test executes, and how long it takes."""

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import FrameType
from typing import Any

from tests.checker_mutants.mutants import ROOT, Mutant, first_lines, function_digests

CALLS_MAX = 60
"""Of one function in one test, whose lines are noted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one test executes.

    Attributes:
        seconds: Processor time with its fixtures, lines being counted.
        lines: By module and function, counted from the first line of the function: other functions may change.
    """

    seconds: float
    lines: dict[str, dict[str, frozenset[int]]]

    def executes(self, mutant: Mutant) -> bool:
        """Whether the test runs the statement of the mutant; outside of functions, anything of the module."""
        functions = self.lines.get(mutant.module, {})
        if not mutant.is_in_function:
            return bool(functions)
        first, last = (line - mutant.outer_line for line in mutant.statement)
        return not functions.get(mutant.outer, frozenset()).isdisjoint(range(first, last + 1))


class LineCounter:
    """Notes executed lines. Mutable: the lines since the last `take`.

    A function that is called often is taken to execute all of its lines: noting them would take most of the time.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = {os.path.realpath(ROOT / module): module for module in modules}
        self._first_lines = {module: first_lines(module) for module in modules}
        self._lines: dict[str, dict[str, set[int]]] = {}
        self._calls: Counter[int] = Counter()

    def start(self) -> None:
        """Begins to note lines, in every thread that begins from now on too."""
        threading.settrace(self._called)
        sys.settrace(self._called)

    def stop(self) -> None:
        """Ends it."""
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]

    def take(self) -> dict[str, dict[str, list[int]]]:
        """Returns the lines since the last call, as in `Measured`."""
        lines = {
            module: {
                name: sorted(line - self._first_lines[module].get(name, 0) for line in found)
                for name, found in functions.items()
            }
            for module, functions in self._lines.items()
        }
        self._lines = {}
        self._calls.clear()
        return lines

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        module = self._modules.get(code.co_filename)
        if module is None:
            return None
        outer = code.co_qualname.partition(".<locals>")[0]
        lines = self._lines.setdefault(module, {}).setdefault(outer, set())
        self._calls[id(code)] += 1
        if self._calls[id(code)] >= CALLS_MAX:
            if self._calls[id(code)] == CALLS_MAX:
                lines.update(line for _, _, line in code.co_lines() if line is not None)
            return None
        lines.add(frame.f_lineno)

        def executed(frame: FrameType, event: str, argument: Any) -> Any:
            lines.add(frame.f_lineno)
            return executed

        return executed


def kept(path: Path, modules: Sequence[str]) -> dict[str, Any]:
    """Returns what an earlier run measured and is still true, by test.

    That is what belongs to a test file that did not change, and executes no function that did: that one may call
    others now.
    """
    content = json.loads(path.read_text()) if path.exists() else {}
    same = {file for file, digest in content.get("files", {}).items() if digest == _digest(file)}
    now = {module: function_digests(module) for module in modules}
    then = content.get("functions", {})
    changed = {
        (module, name)
        for module, digests in then.items()
        for name, digest in digests.items()
        if now.get(module, {}).get(name) != digest
    }
    return {
        test: found
        for test, found in content.get("tests", {}).items()
        if then
        and test.partition("::")[0] in same
        and changed.isdisjoint((m, name) for m, names in found["lines"].items() for name in names)
    }


def keep(path: Path, tests: dict[str, Any], modules: Sequence[str]) -> None:
    """Writes what was measured."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files = sorted({test.partition("::")[0] for test in tests})
    content = {
        "files": {file: _digest(file) for file in files},
        "functions": {module: function_digests(module) for module in modules},
        "tests": tests,
    }
    # Another run may read it at any time.
    unfinished = path.with_suffix(f".{os.getpid()}")
    unfinished.write_text(json.dumps(content))
    unfinished.replace(path)


def _digest(path: str) -> str:
    text = (ROOT / path).read_bytes() if (ROOT / path).exists() else b""
    return sha256(text).hexdigest()[:16]


def measured(tests: dict[str, Any]) -> dict[str, Measured]:
    """Returns what the child that counted the lines reported."""
    return {
        test: Measured(
            seconds=content["seconds"],
            lines={
                module: {name: frozenset(lines) for name, lines in functions.items()}
                for module, functions in content["lines"].items()
            },
        )
        for test, content in tests.items()
    }


def processor_seconds() -> float:
    """Returns the processor time of this process."""
    return time.process_time()
