"""Known replication bugs that the reference system can have on purpose.

A defect is rules that are not applied, in a profile. What it does to clients is written next to it in letters, and
a test in `tests/mutations` proves every line: with the rules the same faults do no harm, without them the harm is
found. Identifiers are stable; the missing numbers are bugs of parts that do not exist here.

| letter | what clients see                                                                 |
|--------|----------------------------------------------------------------------------------|
| A      | a record that was acknowledged with acks=all is lost, and nothing excuses it      |
| V      | a record that a consumer had read is gone                                         |
| D      | one offset showed two values                                                      |
| C      | a corrupt record was read                                                         |
| L      | something that should work does not, or only after a time-out                     |
"""

from dataclasses import dataclass
from difflib import get_close_matches

from system_under_test.config import DEFAULT_PROFILE


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """One known bug.

    Attributes:
        id: Stable identifier, for example "B-18".
        name: For the command line, for example "hw-not-gated".
        origin: The Kafka issue or proposal that describes it; "plausible" when it follows from the rule alone.
        rules: Identifiers of the rules that are switched off (`rules.SWITCHABLE_RULES`); none if the profile
            itself lacks what would prevent it.
        profile: Where it does its harm.
        anomalies: Letters of the table above, what matters most first; empty if only the invariants show it.
        invariants: Which of them the monitor may find broken first (`docs/invariants.md`).
        sentence: What goes wrong.
    """

    id: str
    name: str
    origin: str
    rules: tuple[str, ...]
    sentence: str
    profile: str = DEFAULT_PROFILE
    anomalies: tuple[str, ...] = ()
    invariants: tuple[str, ...] = ()


_ALL: tuple[Defect, ...] = (
)

DEFECTS: dict[str, Defect] = {defect.id: defect for defect in _ALL}
"""Every defect by its identifier."""


def find_defect(name: str) -> Defect:
    """Returns a defect by its identifier or its name.

    Raises:
        ValueError: There is no such defect; the sentence suggests one and says where all are listed.
    """
    by_name = {defect.name: defect for defect in _ALL}
    found = DEFECTS.get(name.upper()) or by_name.get(name.lower())
    if found is None:
        near = get_close_matches(name.lower(), by_name, n=1) or get_close_matches(
            name.upper(), DEFECTS, n=1
        )
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"no defect is called {name!r}{hint} (there are {len(DEFECTS)})")
    return found
