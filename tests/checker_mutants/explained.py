"""Mutants that no test can kill, and why: `explained.toml`."""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.checker_mutants.mutants import Mutant

PATH = Path(__file__).with_name("explained.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why mutants of one line are equivalent to the original.

    Attributes:
        module, function, line: As in `Mutant`.
        changes: The changes that it is about.
        reason: One sentence or two.
        repetition: Which of several equal changes of the line it is about, as in `Mutant`; None for all.
    """

    module: str
    function: str
    line: str
    changes: tuple[str, ...]
    reason: str
    repetition: int | None = None

    def is_about(self, mutant: Mutant) -> bool:
        """Whether it explains a mutant."""
        return (
            (mutant.module, mutant.function, mutant.line) == (self.module, self.function, self.line)
            and mutant.change in self.changes
            and self.repetition in (None, mutant.repetition)
        )


def read_explanations(path: Path = PATH) -> list[Explanation]:
    """Returns the content of the file."""
    return [
        Explanation(**entry | {"changes": tuple(entry["changes"])})
        for entry in tomllib.loads(path.read_text()).get("mutants", [])
    ]


def explanation_of(mutant: Mutant, explanations: Iterable[Explanation]) -> Explanation | None:
    """Returns what explains a mutant, None if nothing does."""
    return next((found for found in explanations if found.is_about(mutant)), None)
