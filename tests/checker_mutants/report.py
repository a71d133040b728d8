"""Prints what became of the mutants."""

from collections import Counter
from collections.abc import Sequence

from tests.checker_mutants.explained import Explanation, explanation_of, read_explanations
from tests.checker_mutants.mutants import Mutant
from tests.checker_mutants.outcome import Outcomes

COLUMNS = ("killed", "explained", "survived", "to do")


def print_report(mutants: Sequence[Mutant], outcomes: Outcomes) -> int:
    """Prints a table by module, and explanations of mutants that are killed.

    Returns:
        The exit code.
    """
    explanations = read_explanations()
    counts: dict[str, Counter[str]] = {}
    refuted = []
    for mutant in mutants:
        state = _state(mutant, outcomes, explanations)
        counts.setdefault(mutant.module, Counter())[state] += 1
        outcome = outcomes.get(mutant)
        if outcome and outcome.is_killed and explanation_of(mutant, explanations):
            refuted.append(f"{mutant.module}:{mutant.line_number}: {mutant.change}: {outcome.by}")
    width = max(len(module) for module in counts)
    print(f"{'module':{width}} {'mutants':>8}" + "".join(f"{name:>11}" for name in COLUMNS))
    total: Counter[str] = Counter()
    for module, count in counts.items():
        total += count
        print(_row(module, count, width))
    print(_row("total", total, width))
    for line in refuted:
        print(f"explained as equivalent, but killed: {line}")
    return 1 if total["survived"] or refuted else 0


def _row(name: str, count: Counter[str], width: int) -> str:
    cells = "".join(f"{count[column]:11}" for column in COLUMNS)
    return f"{name:{width}} {count.total():8}{cells}"


def _state(mutant: Mutant, outcomes: Outcomes, explanations: Sequence[Explanation]) -> str:
    outcome = outcomes.get(mutant)
    if outcome is None:
        return "to do"
    if outcome.is_killed:
        return "killed"
    return "explained" if explanation_of(mutant, explanations) else "survived"


def print_survivors(mutants: Sequence[Mutant], outcomes: Outcomes) -> int:
    """Prints every mutant that survived without explanation.

    Returns:
        The exit code.
    """
    explanations = read_explanations()
    survived = [m for m in mutants if _state(m, outcomes, explanations) == "survived"]
    for mutant in survived:
        outcome = outcomes.get(mutant)
        assert outcome is not None
        ran = f"{outcome.tests} tests" if outcome.tests else "no test executes it"
        print(f"{mutant.module}:{mutant.line_number} {mutant.function} ({ran})")
        print(f"    line:   {mutant.line}\n    change: {mutant.change}")
    print(f"{len(survived)} survivors without explanation")
    return 1 if survived else 0
