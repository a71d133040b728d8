"""What became of a mutant, and the file that keeps it: JSON lines, one per judged mutant; the last line counts."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Literal

from tests.checker_mutants.mutants import ROOT, Mutant

Ending = Literal["killed", "endless", "survived", "not executed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How the tests judged a mutant.

    Attributes:
        source: Digest of the module's text. An outcome is valid for this text alone.
        mutant: Name of the mutant.
        ending: `killed` by a test; `endless`: a limit of time or memory ended it, which counts as killed;
            `survived` all tests that ran; `not executed`: no test runs the line.
        by: The test that killed it.
        tests: How many tests ran, the killer included.
        cpu_s: Processor time.
        thorough: Whether all tests were run that execute the line, not only the fast ones.
    """

    source: str
    mutant: str
    ending: Ending
    by: str = ""
    tests: int = 0
    cpu_s: float = 0.0
    thorough: bool = False

    @property
    def is_killed(self) -> bool:
        """Whether the mutant was noticed."""
        return self.ending in ("killed", "endless")


@cache
def source_of(module: str) -> str:
    """Returns the digest of a module's text."""
    return sha256((ROOT / module).read_bytes()).hexdigest()[:12]


class Outcomes:
    """All outcomes in a file that are valid for the present text of the modules. Mutable: grows with `add`."""

    def __init__(self, path: Path, modules: Iterable[str]) -> None:
        self._path = path
        sources = {source_of(module) for module in modules}
        self._of: dict[tuple[str, str], Outcome] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            # The last line is cut off if the process ended while writing it; its mutant is judged again.
            if line.endswith("}"):
                outcome = Outcome(**json.loads(line))
                if outcome.source in sources:
                    self._of[outcome.source, outcome.mutant] = outcome

    def get(self, mutant: Mutant) -> Outcome | None:
        """Returns the outcome of a mutant, None if it is still to be judged."""
        return self._of.get((source_of(mutant.module), mutant.name))

    def add(self, outcome: Outcome) -> None:
        """Keeps an outcome, in the file too."""
        self._of[outcome.source, outcome.mutant] = outcome
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(outcome)) + "\n")
