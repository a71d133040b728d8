"""What became of a mutant, and the files that keep it.

The results are JSON lines, one per judged mutant; the last line counts. `judged.jsonl` belongs to the repository.
It has one line per module whose mutants were judged: the digest of its text, the kinds of mutants that were judged
without exception, and what survived.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from tests.checker_mutants.mutants import KINDS, REQUIRED, ROOT, Mutant
from tests.evidence.meaning import meaning_of

JUDGED = Path(__file__).with_name("judged.jsonl")

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
    """Returns the digest of a module's text; what only people read does not count."""
    return sha256(meaning_of((ROOT / module).read_text()).encode()).hexdigest()[:12]


class Outcomes:
    """All outcomes that are valid for the present text of the modules. Mutable: grows with `add`.

    Args:
        path: The results.
        modules: Which modules count.
        judged: The file of modules that were judged as a whole.
    """

    def __init__(self, path: Path, modules: Iterable[str], judged: Path = JUDGED) -> None:
        self._path = path
        self._judged_path = judged
        sources = {source_of(module) for module in modules}
        self._judged = {
            line["source"]: (frozenset(line["kinds"]), frozenset(line["survivors"]))
            for line in _judged_lines(judged)
        }
        self._of: dict[tuple[str, str], Outcome] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            # The last line is cut off if the process ended while writing it; its mutant is judged again.
            if line.endswith("}"):
                outcome = Outcome(**json.loads(line))
                if outcome.source in sources:
                    self._of[outcome.source, outcome.mutant] = outcome

    def get(self, mutant: Mutant) -> Outcome | None:
        """Returns the outcome of a mutant, None if it is still to be judged."""
        source = source_of(mutant.module)
        kinds, survivors = self._judged.get(source, (frozenset(), frozenset()))
        if (found := self._of.get((source, mutant.name))) or mutant.kind not in kinds:
            return found
        ending: Ending = "survived" if mutant.name in survivors else "killed"
        return Outcome(source=source, mutant=mutant.name, ending=ending)

    def keep(self, mutants: Iterable[Mutant]) -> list[str]:
        """Writes modules with a kind that was judged without exception to the repository's file.

        Args:
            mutants: All mutants of some modules.

        Returns:
            The names of these modules.
        """
        by_module: dict[str, list[tuple[Mutant, Outcome | None]]] = {}
        for mutant in mutants:
            by_module.setdefault(mutant.module, []).append((mutant, self.get(mutant)))
        kept = {line["module"]: line for line in _judged_lines(self._judged_path)}
        complete = []
        for module, pairs in by_module.items():
            kinds = {kind: [one for each, one in pairs if each.kind == kind] for kind in KINDS}
            judged = [kind for kind, outcomes in kinds.items() if None not in outcomes]
            if set(judged) >= REQUIRED:
                complete.append(module)
                kept[module] = {
                    "module": module,
                    "source": source_of(module),
                    "kinds": judged,
                    "mutants": sum(len(kinds[kind]) for kind in judged),
                    "survivors": sorted(
                        each.name
                        for each, one in pairs
                        if each.kind in judged and one and not one.is_killed
                    ),
                }
        lines = [json.dumps(kept[module], sort_keys=True) for module in sorted(kept)]
        self._judged_path.write_text("".join(f"{line}\n" for line in lines))
        return complete

    def add(self, outcome: Outcome) -> None:
        """Keeps an outcome, in the file too."""
        self._of[outcome.source, outcome.mutant] = outcome
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(outcome)) + "\n")


def _judged_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
