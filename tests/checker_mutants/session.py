"""One pytest session that stays warm: tests are collected once, and every mutant is judged in a fork of it.

A mutant in the body of a function replaces the code of the function object, which every importer shares. Any other
mutant needs modules that are imported anew: `fresh.py` judges it.
"""

import gc
import importlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from tests.checker_mutants.children import Ended, run_in_child
from tests.checker_mutants.lines import LineCounter, processor_seconds
from tests.checker_mutants.mutants import ROOT, Mutant, mutated_code
from tests.checker_mutants.targets import MARKS

ARGUMENTS = (
    "-qq",
    "--no-header",
    "--capture=no",
    "-p",
    "no:randomly",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "-m",
    MARKS,
)
MEASURE_LIMIT_S = 1800.0


class FirstFailure:
    """A pytest plugin. Mutable: whether any phase of any test failed."""

    def __init__(self) -> None:
        self.failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes a failure."""
        self.failed |= report.failed


def run_until_failure(items: Sequence[pytest.Item], failures: FirstFailure) -> dict[str, Any]:
    """Runs tests in this order until one fails.

    Returns:
        The test that failed, "" if none, and how many ran.
    """
    prepare(items)
    for at, item in enumerate(items):
        following = items[at + 1] if at + 1 < len(items) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if failures.failed:
            return {"by": item.nodeid, "tests": at + 1}
    return {"by": "", "tests": len(items)}


def prepare(items: Sequence[pytest.Item]) -> None:
    """Tears down what the test of the warm-up left beside the session's fixtures."""
    for item in items[:1]:
        item.session._setupstate.teardown_exact(item)


class WarmSession:
    """A pytest plugin that collects tests and passes itself to a function instead of running them."""

    def __init__(self, modules: Iterable[str], then: Callable[["WarmSession"], None]) -> None:
        self._modules = tuple(modules)
        self._then = then
        self._failures = FirstFailure()
        self._items: dict[str, pytest.Item] = {}
        self._functions: dict[tuple[str, str, int], list[FunctionType]] = {}
        self._scratch: Path | None = None
        self._kept_scratch: frozenset[str] = frozenset()

    def pytest_configure(self, config: pytest.Config) -> None:
        """Watches for failures."""
        config.pluginmanager.register(self._failures, "first-failure")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Takes the place of running the tests."""
        if session.testsfailed:
            raise session.Interrupted("tests cannot be collected")
        self._items = {item.nodeid: item for item in session.items}
        factory = session.config._tmp_path_factory  # type: ignore[attr-defined]
        self._scratch = factory.getbasetemp()
        self._find_functions()
        # Children collect nothing of what is here already: that would copy its memory.
        gc.freeze()
        self._then(self)
        return True

    @property
    def tests(self) -> list[str]:
        """The collected tests."""
        return list(self._items)

    def warm_up(self, test: str) -> None:
        """Runs a test in this process, so that its fixtures of the session are there for every child.

        Raises:
            RuntimeError: It fails.
        """
        others = [item for item in self._items.values() if item.nodeid != test]
        if test not in self._items or not others:
            return
        item = self._items[test]
        same_file = [other for other in others if other.path == item.path]
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=[*same_file, *others][0])
        if self._failures.failed:
            raise RuntimeError(f"{test} fails without any mutant")
        assert self._scratch is not None
        self._kept_scratch = frozenset(path.name for path in self._scratch.iterdir())

    def measure(self, tests: Sequence[str]) -> dict[str, Any]:
        """Runs tests in a child and returns the processor time of each and the lines that it executes.

        Raises:
            RuntimeError: A test fails.
        """

        def run() -> dict[str, Any]:
            counter = LineCounter(self._modules)
            found = {}
            items = [self._items[test] for test in tests]
            prepare(items)
            for at, item in enumerate(items):
                following = items[at + 1] if at + 1 < len(items) else None
                began = processor_seconds()
                counter.start()
                try:
                    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                finally:
                    counter.stop()
                seconds = round(processor_seconds() - began, 4)
                found[item.nodeid] = {"seconds": seconds, "lines": counter.take()}
                if self._failures.failed:
                    return {"failed": item.nodeid}
            return {"tests": found}

        ended = self._in_child(run, cpu_limit_s=MEASURE_LIMIT_S)
        if ended.report is None or "failed" in ended.report:
            failed = "a test" if ended.report is None else ended.report["failed"]
            raise RuntimeError(f"{failed} fails without any mutant; run it with pytest")
        found: dict[str, Any] = ended.report["tests"]
        return found

    def judge(self, mutant: Mutant | None, tests: Sequence[str], cpu_limit_s: float) -> Ended:
        """Runs tests against a mutant until one fails.

        Args:
            mutant: In the body of a function; None for the unchanged modules.
            tests: In this order.
            cpu_limit_s: Processor time for all of them.

        Returns:
            How the child ended; its report is that of `run_until_failure`.
        """
        code = None if mutant is None else mutated_code(mutant)

        def run() -> dict[str, Any]:
            if code is not None:
                self._replace(code)
            return run_until_failure([self._items[test] for test in tests], self._failures)

        return self._in_child(run, cpu_limit_s=cpu_limit_s)

    def can_replace(self, mutant: Mutant) -> bool:
        """Whether the function of a mutant has function objects whose code can be replaced."""
        if not mutant.is_in_function:
            return False
        path = os.path.realpath(ROOT / mutant.module)
        first, last = mutant.statement
        return any(
            file == path and _contains(function.__code__, first, last)
            for (file, _, _), functions in self._functions.items()
            for function in functions
        )

    def _in_child(self, run: Callable[[], Any], *, cpu_limit_s: float) -> Ended:
        ended = run_in_child(run, cpu_limit_s=cpu_limit_s, elapsed_limit_s=10 * cpu_limit_s + 60)
        assert self._scratch is not None
        for path in self._scratch.iterdir():
            if path.name not in self._kept_scratch:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        return ended

    def _find_functions(self) -> None:
        for module in self._modules:
            # Some are imported only when a test needs them.
            importlib.import_module(module.removesuffix(".py").replace("/", "."))
        paths = {os.path.realpath(ROOT / module) for module in self._modules}
        for found in gc.get_objects():
            if type(found) is FunctionType and found.__code__.co_filename in paths:
                self._functions.setdefault(_key(found.__code__), []).append(found)

    def _replace(self, code: CodeType) -> None:
        """Gives every function the code that it has in a module with one change."""
        changed: dict[tuple[str, str, int], list[CodeType]] = {}
        for inner in _codes_within(code):
            changed.setdefault(_key(inner), []).append(inner)
        for key, codes in changed.items():
            # Two functions without a name may be on one line: they differ in nothing but their code.
            functions = self._functions.get(key, [])
            old = [function.__code__ for function in functions]
            new = [each for each in codes if each not in old]
            for function in functions:
                if function.__code__ not in codes and new:
                    function.__code__ = new[0]


def _codes_within(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes_within(constant)


def _key(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _contains(code: CodeType, first: int, last: int) -> bool:
    """Whether a function's code, or code inside of it, has one of these lines."""
    lines = {line for _, _, line in code.co_lines() if line is not None}
    if not lines.isdisjoint(range(first, last + 1)):
        return True
    return any(
        _contains(inner, first, last) for inner in code.co_consts if isinstance(inner, CodeType)
    )
