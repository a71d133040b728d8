"""The machinery of mutation testing: it finds mutants, kills those with a known killer, and keeps outcomes."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from tests.checker_mutants.__main__ import parsed, wanted_mutants
from tests.checker_mutants.children import run_in_child
from tests.checker_mutants.explained import Explanation, read_explanations
from tests.checker_mutants.known import known_mutants
from tests.checker_mutants.lines import keep, kept
from tests.checker_mutants.mutants import ROOT, function_digests, mutants_of, mutated_code
from tests.checker_mutants.outcome import Ending, Outcome, Outcomes, source_of
from tests.checker_mutants.targets import BESIDE_NAMES, is_about, is_of, modules

MODULE = "checkers/kernels/time_order.py"
SOURCE = '''
from numpy import maximum

LIMIT: int = 3


class Thing:
    size: int = 2

    def is_small(self, other: int | None = None, *, strict: bool = False) -> bool:
        """Says 1 or True."""
        if other is not None and not strict:
            return self.size + 1 < other
        return any(maximum.accumulate([self.size])[1:] == -self.size)
'''


def changes(source: str) -> list[str]:
    return [mutant.change for mutant in mutants_of(MODULE, source)]


def test_comparisons_constants_operators_and_directions_are_mutated_and_nothing_else() -> None:
    assert changes(SOURCE) == [
        "3 -> 4",
        "2 -> 3",
        "False -> True",
        "other is not None and (not strict) -> other is not None or not strict",
        "other is not None -> other is None",
        "not strict -> not not strict",
        "self.size + 1 < other -> self.size + 1 <= other",
        "self.size + 1 < other -> self.size + 1 >= other",
        "self.size + 1 -> self.size - 1",
        "self.size + 1 -> self.size + 2",
        "any(maximum.accumulate([self.size])[1:] == -self.size)"
        " -> all(maximum.accumulate([self.size])[1:] == -self.size)",
        "maximum.accumulate([self.size])[1:] == -self.size"
        " -> maximum.accumulate([self.size])[1:] != -self.size",
        "maximum.accumulate -> minimum.accumulate",
        "maximum.accumulate([self.size])[1:] -> maximum.accumulate([self.size])[2:]",
        "-self.size -> --self.size",
    ]


def test_a_mutant_names_its_function_and_statement_and_not_its_line_number() -> None:
    first = mutants_of(MODULE, SOURCE)
    moved = mutants_of(MODULE, "# a comment\n" + SOURCE)
    assert [mutant.name for mutant in moved] == [mutant.name for mutant in first]
    assert len({mutant.name for mutant in first}) == len(first)
    assert {mutant.function for mutant in first} == {"<module>", "Thing", "Thing.is_small"}
    assert first[6].statement == (13, 13)
    assert [m.is_in_function for m in first] == [False] * 3 + [True] * 12


def test_the_code_of_a_mutant_has_its_change_and_no_other() -> None:
    values = []
    for mutant in mutants_of(MODULE, "A = 1\nB = 1\n"):
        namespace: dict[str, int] = {}
        exec(mutated_code(mutant, "A = 1\nB = 1\n"), namespace)
        values.append((namespace["A"], namespace["B"]))
    assert values == [(2, 1), (1, 2)]


def test_what_is_explained_still_exists() -> None:
    explanations = read_explanations()
    mutants = {module: mutants_of(module) for module in {each.module for each in explanations}}
    missing = [
        (explanation.module, explanation.function, explanation.line, change)
        for explanation in explanations
        for change in explanation.changes
        if not any(
            mutant.change == change and explanation.is_about(mutant)
            for mutant in mutants[explanation.module]
        )
    ]
    assert not missing
    assert all(explanation.reason for explanation in explanations)


def test_an_explanation_may_be_about_one_of_several_equal_changes_of_a_line() -> None:
    mutants = mutants_of(MODULE, "A = (0, 0)\n")
    explanation = Explanation(
        module=MODULE, function="<module>", line="A = (0, 0)", changes=("0 -> 1",), reason="None."
    )
    assert [explanation.is_about(mutant) for mutant in mutants] == [True, True]
    second = replace(explanation, repetition=1)
    assert [second.is_about(mutant) for mutant in mutants] == [False, True]


def test_what_is_explained_can_be_left_out_when_survivors_are_judged_again(tmp_path: Path) -> None:
    explanation = next(each for each in read_explanations() if each.repetition is None)
    mutants = mutants_of(explanation.module)
    outcomes = Outcomes(tmp_path / "results.jsonl", [explanation.module], tmp_path / "judged.jsonl")
    for mutant in mutants:
        source = source_of(explanation.module)
        outcomes.add(Outcome(source=source, mutant=mutant.name, ending="survived"))
    again = wanted_mutants(mutants, outcomes, parsed(["--survivors"]))
    assert again == mutants
    left = wanted_mutants(mutants, outcomes, parsed(["--survivors", "--unexplained"]))
    assert left and not any(explanation.is_about(mutant) for mutant in left)
    explained = [mutant for mutant in mutants if mutant not in left]
    assert {mutant.change for mutant in explained} >= {*explanation.changes}


@pytest.mark.long
def test_known_mutants_are_killed_and_unchanged_code_survives() -> None:
    known = known_mutants()
    assert len(known) >= 20
    command = [sys.executable, "-m", "tests.checker_mutants.known"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    found = {line["mutant"]: line["by"] for line in lines}
    assert found == {"unchanged, warm": "", "unchanged, fresh": ""} | {
        mutant.name: killer for mutant, killer in known
    }


def test_no_module_of_the_checkers_is_imported_before_it_is_changed() -> None:
    """A module that is imported already would stay as it is, and mutants outside of functions would survive."""
    names = "[name for name in sys.modules if name.startswith('checkers')]"
    program = f"import sys, tests.checker_mutants.__main__; print({names})"
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout == "[]\n"


def test_a_mutant_that_never_ends_or_takes_all_memory_is_ended() -> None:
    def loop() -> None:
        while True:
            pass

    def grow() -> str:
        with pytest.raises(MemoryError):
            bytearray(2**40)
        return "refused"

    assert run_in_child(loop, cpu_limit_s=1, elapsed_limit_s=100).report is None
    assert run_in_child(Event().wait, cpu_limit_s=100, elapsed_limit_s=0.1).report is None
    assert run_in_child(grow, cpu_limit_s=100, elapsed_limit_s=100).report == "refused"


def test_an_outcome_is_kept_until_its_module_changes(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    judged = tmp_path / "judged.jsonl"
    first, second, third = mutants_of(MODULE)[:3]
    outcomes = Outcomes(path, [MODULE], judged)
    source = source_of(MODULE)
    outcomes.add(Outcome(source=source, mutant=first.name, ending="survived"))
    outcomes.add(Outcome(source=source, mutant=first.name, ending="killed", by="a test"))
    outcomes.add(Outcome(source="earlier", mutant=second.name, ending="killed"))
    # The process ended while it wrote the last line.
    path.write_text(path.read_text() + json.dumps({"source": source, "mutant": third.name})[:-5])
    again = Outcomes(path, [MODULE], judged)
    found = again.get(first)
    assert found is not None and found.is_killed and found.by == "a test"
    assert again.get(second) is None
    assert again.get(third) is None


def test_measured_lines_are_kept_until_a_function_that_the_test_executes_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lines.json"
    assert kept(path, [MODULE]) == {}
    one, other = list(function_digests(MODULE))[:2]
    test = "tests/checker_mutants/test_checker_mutants.py::a_test"
    tests = {test: {"seconds": 0.1, "lines": {MODULE: {one: [0, 1]}}}}
    keep(path, tests, [MODULE])
    assert kept(path, [MODULE]) == tests
    digests = function_digests(MODULE)
    for now, expected in (
        (digests | {other: "changed"}, tests),
        (digests | {"added": "new"}, tests),
        (digests | {one: "changed"}, {}),
        ({name: digest for name, digest in digests.items() if name != one}, {}),
    ):
        monkeypatch.setattr("tests.checker_mutants.lines.function_digests", lambda _, now=now: now)
        assert kept(path, [MODULE]) == expected


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("checkers/kernels/transactions", True),
        ("checkers/kernels/transactions/lists.py", True),
        ("lists", True),
        ("list", False),
        ("checkers/kernels/transactions/l", False),
    ],
)
def test_a_module_is_chosen_by_path_folder_or_name(wanted: str, found: bool) -> None:
    assert is_of("checkers/kernels/transactions/lists.py", wanted) is found


def test_every_module_that_decides_is_mutated() -> None:
    found = modules()
    assert "checkers/expectations.py" in found
    assert "checkers/kernels/transactions/cycles.py" in found
    assert all((ROOT / module).exists() for module in found)


def test_a_module_whose_mutants_are_all_judged_is_kept_without_its_results(tmp_path: Path) -> None:
    mutants = mutants_of(MODULE)
    judged = tmp_path / "judged.jsonl"
    outcomes = Outcomes(tmp_path / "results.jsonl", modules(), judged)
    source = source_of(MODULE)
    for at, mutant in enumerate(mutants[1:]):
        ending: Ending = "killed" if at else "survived"
        outcomes.add(Outcome(source=source, mutant=mutant.name, ending=ending))
    assert outcomes.keep(mutants) == []
    outcomes.add(Outcome(source=source, mutant=mutants[0].name, ending="endless"))
    assert outcomes.keep(mutants) == [MODULE]
    again = Outcomes(tmp_path / "none.jsonl", modules(), judged)
    endings = [again.get(mutant).ending for mutant in mutants]  # type: ignore[union-attr]
    assert endings == ["killed", "survived", *["killed"] * (len(mutants) - 2)]
    judged.write_text(judged.read_text().replace(source, "another text"))
    assert Outcomes(tmp_path / "none.jsonl", modules(), judged).get(mutants[0]) is None


def test_tests_about_a_module_are_found_by_name_and_by_list() -> None:
    module = "checkers/kernels/buckets.py"
    assert is_about("tests/unit/test_buckets.py::test_a", module)
    assert is_about("tests/spark/test_huge.py::test_a[1]", module)
    assert not is_about("tests/unit/checkers/test_claims.py::test_buckets", module)
    tests = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    assert {file for files in BESIDE_NAMES.values() for file in files} <= tests
    assert set(BESIDE_NAMES) <= {Path(each).stem for each in modules()}
