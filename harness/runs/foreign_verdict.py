"""What was decided about a history that another tool recorded."""

from dataclasses import dataclass

from harness.contracts.verdict import Verdict

Named = tuple[tuple[int, int | None, str], ...]
"""Operations: number, line and what each is."""

Ordered = tuple[tuple[int, int | None, str, str], ...]
"""Operations in an order that a model allows: as in `Named`, and the state after each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignVerdict:
    """The judgement of a history.

    Attributes:
        verdict: What the checkers decided.
        model: What judged it.
        named: The operations that the verdict names.
        order: The longest order of the first object that is not valid that a model allows. Empty if all are valid,
            if none was searched for, or if no model judged it.
        picture: The same as an SVG element; empty if all are valid, or if no model judged it.
    """

    verdict: Verdict
    model: str
    named: Named = ()
    order: Ordered = ()
    picture: str = ""
