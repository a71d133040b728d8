"""Judges mutants outside of functions, such as constants: modules and tests are imported anew for each.

`FreshProcess` is forked before anything of the project but these helpers is imported. It forks once more per
mutant, and the child imports the mutated module instead of the file.
"""

import importlib.machinery
import json
import os
import socket
from collections.abc import Sequence
from dataclasses import asdict
from types import CodeType
from typing import Any

import pytest

from tests.checker_mutants.children import Ended, run_in_child
from tests.checker_mutants.mutants import ROOT, Mutant, mutated_code
from tests.checker_mutants.session import ARGUMENTS, FirstFailure, run_until_failure

# Imported once, before the process is forked: what takes the most time in each child.
PACKAGES = (
    "numpy",
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pandas",
    "msgspec",
)


class FreshProcess:
    """A process without any module of the project. Mutable: it answers one request after the other."""

    def __init__(self) -> None:
        for package in PACKAGES:
            importlib.import_module(package)
        ours, theirs = socket.socketpair()
        self._pid = os.fork()
        if not self._pid:
            ours.close()
            try:
                _serve(theirs)
            finally:
                os._exit(0)
        theirs.close()
        self._socket = ours
        self._lines = ours.makefile("r")

    def judge(self, mutant: Mutant | None, tests: Sequence[str], cpu_limit_s: float) -> Ended:
        """Does what `WarmSession.judge` does, for any mutant."""
        request = {
            "mutant": None if mutant is None else asdict(mutant),
            "tests": list(tests),
            "cpu_limit_s": cpu_limit_s,
        }
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        return Ended(**json.loads(self._lines.readline()))

    def close(self) -> None:
        """Ends the process."""
        self._lines.close()
        self._socket.close()
        os.waitpid(self._pid, 0)


def _serve(requests: socket.socket) -> None:
    for line in requests.makefile("r"):
        request = json.loads(line)
        wanted, tests, limit_s = request["mutant"], request["tests"], request["cpu_limit_s"]
        mutant = (
            None if wanted is None else Mutant(**wanted | {"statement": tuple(wanted["statement"])})
        )

        def run(mutant: Mutant | None = mutant, tests: list[str] = tests) -> dict[str, Any]:
            if mutant is not None:
                _import_instead(mutant, mutated_code(mutant))
            return _run_tests(tests)

        ended = run_in_child(run, cpu_limit_s=limit_s, elapsed_limit_s=10 * limit_s + 60)
        requests.sendall(json.dumps(asdict(ended)).encode() + b"\n")


def _import_instead(mutant: Mutant, code: CodeType) -> None:
    path = os.path.realpath(ROOT / mutant.module)
    original = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: Any, fullname: str) -> CodeType | None:
        return code if os.path.realpath(self.path) == path else original(self, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


class _Runner(FirstFailure):
    """Runs the collected tests in the order that was asked for."""

    def __init__(self, tests: Sequence[str]) -> None:
        super().__init__()
        self._tests = tests
        self.report: dict[str, Any] | None = None

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        # A test that is not there could not be imported: the module refuses the change.
        if items.keys() >= set(self._tests):
            self.report = run_until_failure([items[test] for test in self._tests], self)
        return True


def _run_tests(tests: list[str]) -> dict[str, Any]:
    files = sorted({test.partition("::")[0] for test in tests})
    runner = _Runner(tests)
    pytest.main([*ARGUMENTS, *(str(ROOT / file) for file in files)], plugins=[runner])
    return runner.report or {"by": "import", "tests": 0}
