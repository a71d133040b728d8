"""The table of mechanisms at the end of docs/rules.md: what carries each of them, from mechanisms.toml."""

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from harness.documents.citations import Place, place_of

FILE = Path(__file__).with_name("mechanisms.toml")

_INTRODUCTION = """\
## Mechanisms

What a log that is replicated like Kafka's consists of, from `harness/documents/mechanisms.toml`. A mechanism has
the code and the tests of its rules; other code and other tests are named with it. Tests fail when the mechanism is
broken. Functions are below `system_under_test` unless their module begins with another package.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """One row.

    Attributes:
        row: A number that does not change when rows are added.
        statement: The mechanism in one sentence.
        rules: Identifiers of the rules that carry it.
        code: Other code, as `module:object`; `module:` is a whole module.
        tests: Other tests, as `path::name`.
        missing: What does not hold; empty if everything does.
    """

    row: int
    statement: str
    rules: tuple[str, ...]
    code: tuple[str, ...]
    tests: tuple[str, ...]
    missing: str

    @property
    def code_places(self) -> tuple[Place, ...]:
        """Where its code is."""
        return tuple(place_of(reference) for reference in self.code)

    @property
    def test_places(self) -> tuple[Place, ...]:
        """Where its tests are."""
        return tuple(Place(*reference.split("::", 1)) for reference in self.tests)


@lru_cache(maxsize=1)
def mechanisms() -> tuple[Mechanism, ...]:
    """Returns the rows in the order of the file."""
    content = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return tuple(
        Mechanism(
            row=entry["row"],
            statement=entry["mechanism"],
            rules=tuple(entry.get("rules", ())),
            code=tuple(entry.get("code", ())),
            tests=tuple(entry.get("tests", ())),
            missing=entry.get("missing", ""),
        )
        for entry in content["mechanisms"]
    )


def section() -> list[str]:
    """Returns the lines of the table."""
    rows = mechanisms()
    complete = sum(not one.missing for one in rows)
    return [
        "",
        *_INTRODUCTION.splitlines(),
        "",
        f"{complete} of {len(rows)} have code and tests.",
        "",
        "| row | mechanism | rules | other code | other tests |",
        "|---|---|---|---|---|",
        *(_line(one) for one in rows),
    ]


def _line(one: Mechanism) -> str:
    statement = f"{one.statement} **Missing:** {one.missing}" if one.missing else one.statement
    code = ", ".join(f"`{reference.removesuffix(':')}`" for reference in one.code)
    tests = ", ".join(f"`{reference}`" for reference in one.tests)
    return f"| {one.row} | {statement} | {', '.join(one.rules)} | {code} | {tests} |"
