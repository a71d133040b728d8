"""Proves that the machinery works: mutants with a known killer are killed, and unchanged code survives.

`python -m tests.checker_mutants.known` prints one JSON line per entry of `known.toml`, and for unchanged code.
"""

import json
import os
import sys
import tomllib
from pathlib import Path

import pytest

from tests.checker_mutants.children import Ended
from tests.checker_mutants.explained import Explanation
from tests.checker_mutants.fresh import FreshProcess
from tests.checker_mutants.mutants import ROOT, Mutant, mutants_of
from tests.checker_mutants.session import ARGUMENTS, WarmSession

PATH = Path(__file__).with_name("known.toml")
CPU_LIMIT_S = 2.0
FRESH_CPU_LIMIT_S = 30.0


def known_mutants() -> list[tuple[Mutant, str]]:
    """Returns the mutants of the file, each with its killer.

    Raises:
        LookupError: A mutant no longer exists.
    """
    known = []
    of_module: dict[str, list[Mutant]] = {}
    for entry in tomllib.loads(PATH.read_text())["mutants"]:
        killer = entry.pop("killer")
        wanted = Explanation(**entry | {"changes": (entry.pop("change"),)}, reason="")
        module = wanted.module
        mutants = of_module.setdefault(module, mutants_of(module))
        found = next((mutant for mutant in mutants if wanted.is_about(mutant)), None)
        if found is None:
            raise LookupError(
                f"{module} no longer has this mutant: {wanted.line}: {wanted.changes[0]}"
            )
        known.append((found, killer))
    return known


def main() -> int:
    """Judges the mutants, each with its killer alone."""
    known = known_mutants()
    killers = list(dict.fromkeys(killer for _, killer in known))
    modules = sorted({mutant.module for mutant, _ in known})
    fresh = FreshProcess()

    def judge_in(session: WarmSession) -> None:
        _print("unchanged, warm", session.judge(None, killers, CPU_LIMIT_S))
        _print("unchanged, fresh", fresh.judge(None, killers[:1], FRESH_CPU_LIMIT_S))
        for mutant, killer in known:
            if session.can_replace(mutant):
                ended = session.judge(mutant, [killer], CPU_LIMIT_S)
            else:
                ended = fresh.judge(mutant, [killer], FRESH_CPU_LIMIT_S)
            _print(mutant.name, ended)

    files = sorted({killer.partition("::")[0] for killer in killers})
    paths = [str(ROOT / file) for file in files]
    try:
        pytest.main([*ARGUMENTS, *paths], plugins=[WarmSession(modules, judge_in)])
    finally:
        fresh.close()
    return 0


def _print(name: str, ended: Ended) -> None:
    by = "endless" if ended.report is None else ended.report["by"]
    print(json.dumps({"mutant": name, "by": by, "cpu_s": ended.cpu_s}), flush=True)


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
