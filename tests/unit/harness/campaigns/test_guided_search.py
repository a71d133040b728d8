"""Guidance: which runs are mutants of which, the same for any order of rows; and what mutations do."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from checkers.spark import SparkOptions
from harness.campaigns import compare as campaigns
from harness.campaigns.compare import Workers, run_campaign, swarm_plan
from harness.campaigns.files import CORPUS_FOLDER, ROWS_FILE
from harness.campaigns.guided.campaign import GuidedArm
from harness.campaigns.guided.guidance import (
    FAMILIES_MAX,
    GENERATION,
    TEMPLATES_MAX,
    Entry,
    Guidance,
    Step,
)
from harness.campaigns.guided.mutations import (
    OPERATORS,
    Material,
    Mutant,
    mutate,
    weighted,
    with_kinds,
)
from harness.campaigns.plan import load_plan, store_plan
from harness.campaigns.row_log import whole_rows
from harness.campaigns.shrinking.trial import Trial, explicit
from harness.cli.campaigns import guided_sentences
from harness.cli.progress import StandardErrorProgress
from harness.errors import UsageError
from harness.runs import experiment_file as experiments
from harness.runs.coverage import coverage_of, hash_of
from harness.runs.experiment import Experiment, NemesisConfig
from harness.runs.planned import planned_schedule, unscaled
from harness.runs.resolved import resolve
from harness.runs.simulated import simulate
from nemesis.fault import Fault
from results.report.compare import build_compare_report
from tests.unit.harness.campaigns.fake_crew import fake_crew, made_up_row

SEARCH = experiments.load(Path(experiments.__file__).parents[1] / "experiments" / "search.toml")
RUNS = 6 * GENERATION
WORKERS = Workers(jobs=2, spark=SparkOptions(enabled=False))


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """A made-up run: what it reaches and whether it fails follows from what it runs."""
    root_seed = request.get("root_seed", request["seed"])
    schedule = request["experiment"]["schedule"]
    names = sorted({f"fault {fault['fault']} {fault['at_ms'] % 7}" for fault in schedule})
    names.append(f"seed {root_seed % 20}")
    return made_up_row(
        request,
        int(root_seed % 9 == 4),
        coverage=[hash_of(name) for name in names],
        feature_names=names,
        margins={"INV-2": root_seed % 3},
        marks={"became-leader": 1},
        trace_hash=f"{root_seed}-{len(schedule)}",
    )


def request_of(guidance: Guidance, number: int) -> dict[str, Any]:
    step = guidance.step(number)
    trial = Trial(experiment=SEARCH, seed=number) if step is None else step.mutant.trial
    return {
        "experiment": experiments.to_data(trial.experiment),
        "seed": number,
        "root_seed": trial.seed,
        "arm": "a",
        "run": str(number),
    }


def searched(order: Sequence[int]) -> tuple[list[Any], Guidance]:
    """Runs generations with the rows of each in this order of positions; returns what every run was."""
    kept: list[int] = []
    guidance = Guidance("a", SEARCH, 100, keep=lambda entry, _: kept.append(entry.number))
    what = []
    for generation in range(RUNS // GENERATION):
        numbers = range(100 + generation * GENERATION, 100 + (generation + 1) * GENERATION)
        requests = [request_of(guidance, number) for number in numbers]
        what += requests
        for position in order:
            guidance.add(numbers[position], answer(requests[position]))
    assert kept == [entry.number for entry in guidance.corpus]
    return what, guidance


def test_the_order_in_which_runs_end_changes_nothing() -> None:
    forwards, first = searched(range(GENERATION))
    backwards, second = searched(range(GENERATION)[::-1])
    assert forwards == backwards
    assert first.counts == second.counts
    assert first.counts.mutants.tries > GENERATION


def test_a_generation_is_known_before_the_last_one_has_ended() -> None:
    guidance = Guidance("a", SEARCH, 0)
    assert guidance.is_ready(2 * GENERATION - 1)
    assert not guidance.is_ready(2 * GENERATION)
    with pytest.raises(ValueError, match="depends on runs"):
        guidance.step(2 * GENERATION)
    for number in range(1, GENERATION):
        guidance.add(number, answer(request_of(guidance, number)))
    assert not guidance.is_ready(2 * GENERATION)
    guidance.add(0, answer(request_of(guidance, 0)))
    assert guidance.is_ready(3 * GENERATION - 1)


def test_a_failing_run_is_kept_but_is_no_parent() -> None:
    what, guidance = searched(range(GENERATION))
    failing = {entry.number for entry in guidance.corpus if entry.is_failing}
    steps = [entry.step for entry in guidance.corpus if entry.step is not None]
    assert failing
    assert steps
    assert not failing & {step.parent for step in steps}
    mutated = [guidance.step_of(request["seed"]) for request in what]
    assert not any(
        step.mutant.trial.seed % 9 == 4 for step in mutated if step is not None and step.operators
    )


def weighted_steps(guidance: Guidance, first: int = 100) -> list[Step]:
    steps = [guidance.step_of(number) for number in range(first, first + RUNS)]
    return [step for step in steps if step is not None and step.parent is None]


def test_half_of_the_drawn_runs_use_few_families_and_templates() -> None:
    what, guidance = searched(range(GENERATION))
    counts = guidance.counts
    # Of 16 runs 8 are drawn, 4 of them weighted, from the third generation on.
    assert counts.weighted.tries == 4 * (RUNS // GENERATION - 2)
    assert counts.drawn.tries == RUNS - counts.mutants.tries
    for step in weighted_steps(guidance):
        families = [kind for kind in step.kinds if kind.startswith("family ")]
        templates = [kind for kind in step.kinds if kind.startswith("template ")]
        assert 1 <= len(families) <= FAMILIES_MAX
        assert 1 <= len(templates) <= TEMPLATES_MAX
        assert step.mutant.trial.schedule
        assert step.to_row()["kinds"] == list(step.kinds)
    plain = [request for request in what if not request["experiment"]["schedule"]]
    assert len(plain) == 2 * GENERATION + 4 * (RUNS // GENERATION - 2)


def test_weighted_runs_prefer_what_was_new_and_leave_nothing_out() -> None:
    guidance = Guidance("a", SEARCH, 0)
    guidance.corpus.append(
        Entry(
            number=0, step=None, new=("a",), marks=(), margins={}, trace_hash="", is_failing=False
        )
    )
    for kind, tally in guidance.counts.kinds.items():
        tally.tries, tally.new = 50, 40 if kind in ("family kill", "template election") else 0
    drawn = [guidance._draw_weighted(number) for number in range(60)]
    kinds = [kind for step in drawn if step is not None for kind in step.kinds]
    assert kinds.count("family kill") > 40
    assert kinds.count("template election") > 25
    # The others keep a small probability, and half of the drawn runs ignore the weights.
    assert len(set(kinds)) > 10


def test_a_weighted_run_injects_faults_of_its_families_only() -> None:
    experiment, _ = resolve(SEARCH, 5)
    few = with_kinds(experiment, SEARCH.nemesis, ("family kill", "family pause"))
    assert {fault.fault for fault in planned_schedule(few, 5)} <= {"kill", "pause"}
    assert few.nemesis.gap_ms == SEARCH.nemesis.gap_ms


def test_the_stored_file_of_a_weighted_run_repeats_it() -> None:
    _, guidance = searched(range(GENERATION))
    trial = next(
        entry.step.mutant.trial
        for entry in guidance.corpus
        if entry.step is not None and entry.step.parent is None
    )
    text = experiments.dumps(trial.experiment)
    assert experiments.dumps(experiments.loads(text, origin="corpus")) == text
    assert trial.experiment.nemesis == NemesisConfig()
    assert planned_schedule(trial.experiment, trial.seed) == planned_schedule(trial.experiment, 0)


def test_a_rare_run_close_to_failing_is_chosen_more_often() -> None:
    entry = Entry(
        number=1, step=None, new=("a",), marks=(), margins={}, trace_hash="", is_failing=False
    )
    close = replace(entry, number=2, margins={"INV-2": 0})
    far = replace(entry, number=3, margins={"INV-2": 8})
    assert entry.danger < far.danger < close.danger
    picked = [weighted(Random(seed), {"a": 3.0, "b": 1.0}) for seed in range(400)]
    assert 260 < picked.count("a") < 340


def material(seed: int) -> Material:
    def trial(number: int) -> tuple[Trial, Any]:
        experiment, drawn = resolve(SEARCH, number)
        schedule = unscaled(planned_schedule(experiment, number), experiment)
        return explicit(experiment, schedule, number), drawn

    parent, drawn = trial(seed)
    return Material(
        parent=parent,
        drawn=drawn,
        other=trial(seed + 1)[0],
        marks=("became-leader",),
        base=SEARCH,
        kinds={"family kill": 1.0, "template election": 1.0},
        name="m7-0",
    )


def mutants(operator: str) -> list[tuple[Material, Mutant]]:
    made = [
        (one, mutate(Random(seed), one, operator)) for seed in range(12) if (one := material(seed))
    ]
    return [(one, mutant) for one, mutant in made if mutant is not None]


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_operator_changes_the_run_and_keeps_its_seed(operator: str) -> None:
    made = mutants(operator)
    assert len(made) >= 4
    for one, mutant in made:
        assert mutant.trial.seed == one.parent.seed
        assert mutant.trial != one.parent
        assert not mutant.trial.experiment.space
        data = experiments.to_data(mutant.trial.experiment)
        assert experiments.to_data(experiments.from_data(data)) == data


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_same_stream_makes_the_same_mutant(operator: str) -> None:
    assert mutate(Random(3), material(3), operator) == mutate(Random(3), material(3), operator)


def schedules(operator: str) -> list[tuple[dict[str, Fault], dict[str, Fault]]]:
    return [
        (
            {fault.id: fault for fault in one.parent.schedule},
            {fault.id: fault for fault in mutant.trial.schedule},
        )
        for one, mutant in mutants(operator)
    ]


def test_each_operator_does_what_its_name_says() -> None:
    assert all(len(after) < len(before) for before, after in schedules("drop"))
    for name in ("duplicate", "insert"):
        assert all(after.items() >= before.items() for before, after in schedules(name))
    for name, keys in (
        ("move", ("at_ms", "for_ms")),
        ("retarget", ("targets",)),
        ("retrigger", ("on", "nth", "delay_ms")),
    ):
        for before, after in schedules(name):
            (changed,) = [key for key in before if before[key] != after[key]]
            values = {key: getattr(before[changed], key) for key in keys}
            assert replace(after[changed], **values) == before[changed]
    for one, mutant in mutants("reconfigure"):
        assert mutant.trial.schedule == one.parent.schedule
        assert sum(mutant.drawn[key] != one.drawn[key] for key in one.drawn) == 1
    spliced = schedules("splice")
    assert any(set(after) - set(before) for before, after in spliced)


def test_without_faults_or_a_space_there_is_no_mutant() -> None:
    one = material(1)
    bare = replace(one, parent=explicit(one.parent.experiment, (), 1), base=Experiment())
    for operator in ("drop", "move", "reconfigure"):
        assert mutate(Random(1), bare, operator) is None


def run(directory: Path, runs: int) -> dict[str, Any]:
    directory.mkdir(exist_ok=True)
    if not (directory / "plan.json").exists():
        store_plan(
            swarm_plan(SEARCH, seeds=runs, first_seed=100, keep_failing=0, guided=0.5), directory
        )
    progress = StandardErrorProgress(quiet=True)
    return run_campaign(load_plan(directory), directory, WORKERS, progress)


def origins(directory: Path) -> dict[int, Any]:
    return {row["seed"]: row.get("search") for row in whole_rows(directory / ROWS_FILE)}


def test_a_guided_swarm_continues_where_it_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 0

    def interrupted(request: dict[str, Any]) -> dict[str, Any]:
        nonlocal count
        count += 1
        if count == 3 * GENERATION + 5:
            raise KeyboardInterrupt
        return answer(request)

    monkeypatch.setattr(campaigns, "_crew", lambda *_: fake_crew(answer, members=2, size=3))
    whole = run(tmp_path / "whole", RUNS)
    monkeypatch.setattr(campaigns, "_crew", lambda *_: fake_crew(interrupted, members=1, size=2))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "parts", RUNS)
    assert 0 < len(origins(tmp_path / "parts")) < RUNS
    result = run(tmp_path / "parts", RUNS)
    assert origins(tmp_path / "parts") == origins(tmp_path / "whole")
    page = build_compare_report(tmp_path / "page.html", whole).read_text(encoding="utf-8")
    assert f'<td class="n">{RUNS}</td><td class="n">{whole["guided"]["features"]}</td>' in page
    assert all(f"<td>{name}</td>" in page for name in OPERATORS)
    for one in (whole, result):
        for finding in one["guided"]["findings"]:
            finding.pop("command")
    assert result["guided"] == whole["guided"]
    assert whole["guided"]["mutants"]["runs"] > 0
    assert len(whole["guided"]["curve"]) == RUNS // GENERATION
    assert "features" in guided_sentences(whole)[0]
    names = {path.name for path in (tmp_path / "whole" / CORPUS_FOLDER).iterdir()}
    assert names == {path.name for path in (tmp_path / "parts" / CORPUS_FOLDER).iterdir()}
    assert len(names) >= whole["guided"]["corpus"]


def test_names_of_features_are_stored_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaigns, "_crew", lambda *_: fake_crew(answer, members=2, size=3))
    run(tmp_path / "campaign", RUNS)
    rows = list(whole_rows(tmp_path / "campaign" / ROWS_FILE))
    stored = [key for row in rows for key in row["new_features"]]
    assert len(stored) == len(set(stored))
    assert set(stored) == {key for row in rows for key in row["coverage"]}
    assert not any("feature_names" in row for row in rows)


def test_only_random_faults_in_the_simulation_can_be_guided() -> None:
    with pytest.raises(UsageError, match="only random faults"):
        swarm_plan(Experiment(), seeds=1, first_seed=0, guided=0.5)
    with pytest.raises(UsageError, match="only simulated runs"):
        swarm_plan(
            Experiment(on="local", nemesis=NemesisConfig(faults=("kill",))),
            seeds=1,
            first_seed=0,
            guided=0.5,
        )


def test_a_stored_run_has_the_same_trace_hash_and_coverage() -> None:
    """The file of a drawn run and that of a mutant, read again, repeat the run."""
    experiment, _ = resolve(SEARCH, 3)
    drawn = simulate(experiment, 3)
    parent = material(3).parent
    stored = experiments.loads(experiments.dumps(parent.experiment), origin="corpus")
    again = simulate(stored, 3)
    assert again.trace_hash == drawn.trace_hash
    assert coverage_of(again) == coverage_of(drawn)
    assert again.message_orders
    mutant = mutate(Random(1), material(3), "drop")
    assert mutant is not None
    text = experiments.dumps(mutant.trial.experiment)
    one, other = (
        simulate(experiments.loads(text, origin="corpus"), 3).trace_hash,
        simulate(mutant.trial.experiment, 3).trace_hash,
    )
    assert one == other != drawn.trace_hash


@pytest.mark.parametrize(
    ("values", "is_stored"),
    [
        ({"verdict": "unknown", "unknown_reason": "the final reads do not agree"}, True),
        ({"verdict": "unknown", "tested_nothing": True}, False),
        ({"verdict": "invalid"}, True),
        ({}, False),
    ],
)
def test_a_changed_run_is_stored_if_a_reason_of_the_campaign_may_name_it(
    tmp_path: Path, values: dict[str, Any], is_stored: bool
) -> None:
    arm = GuidedArm("a", SEARCH, 0, 0.5, lambda number: tmp_path / f"{number}.toml")
    changed = []
    for number in range(64):
        data = {"experiment": experiments.to_data(SEARCH), "seed": number, "arm": "a", "run": ""}
        request = arm.request(number, data)
        row = answer(request)
        if "root_seed" in request:
            changed.append(number)
            plain = {"verdict": "valid", "violations": [], "error": "", "unknown_reason": ""}
            row.update(coverage=[], feature_names=[], **{**plain, **values})
        arm.stamp(number, row)
        arm.notice(number, row)
    assert len(changed) > 10
    assert [number for number in changed if (tmp_path / f"{number}.toml").exists()] == (
        changed if is_stored else []
    )
