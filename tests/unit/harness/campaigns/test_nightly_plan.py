from pathlib import Path

import pytest

from harness.campaigns.nightly_plan import (
    DEFAULT_PLAN,
    RANDOM,
    REGRESSION,
    SCRIPTED,
    PlannedJob,
    load_nightly,
    loads_nightly,
)
from harness.errors import UsageError
from harness.runs.record import check_world


def _loads(text: str, folder: Path = Path()) -> tuple[PlannedJob, ...]:
    return loads_nightly(text, origin="plan.toml", folder=folder)


def test_the_default_plan_is_possible_on_a_machine_without_anything_else() -> None:
    jobs = load_nightly(None)
    assert {job.kind for job in jobs} == {SCRIPTED, RANDOM}
    assert {job.experiment.on for job in jobs} == {"simulation", "local"}
    assert all(job.experiment.profile == "kafka-4.1" for job in jobs)
    assert len({job.name for job in jobs}) == len(jobs)
    for job in jobs:
        check_world(job.experiment, 0)


def test_the_default_plan_varies_configurations_and_plays_templates_with_guidance() -> None:
    searching = [job for job in load_nightly(None) if job.experiment.space]
    assert [job.name for job in searching] == ["search"]
    (job,) = searching
    assert job.experiment.nemesis.templates
    assert job.guided == 0.25


def test_a_family_of_scenarios_has_those_that_can_run_where_the_job_does() -> None:
    job = '[[jobs]]\nname = "all"\nscenario = "last-replica-standing"\n'
    simulated = {job.name for job in _loads(job)}
    contained = {job.name for job in _loads(job + 'world = "docker"\n')}
    assert simulated - contained == {"all V10b", "all V11f", "all V11k", "all V11l"}


def test_jobs_name_built_in_experiments_files_tables_and_scenarios(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('name = "mine"\nduration_ms = 700\n', encoding="utf-8")
    jobs = _loads(
        """
        [[jobs]]
        name = "built-in"
        experiment = "elr-compare"
        profiles = ["kafka-4.0", "kafka-4.1"]
        weight = 3

        [[jobs]]
        name = "file"
        experiment = "mine.toml"
        world = "local"

        [[jobs]]
        name = "old"
        seeds = [3, 4]
        [jobs.experiment]
        duration_ms = 900

        [[jobs]]
        name = "script"
        scenario = "last-replica-standing:V3b"
        """,
        tmp_path,
    )
    assert [(job.name, job.kind, job.weight, job.seeds) for job in jobs] == [
        ("built-in kafka-4.0", RANDOM, 1.5, ()),
        ("built-in kafka-4.1", RANDOM, 1.5, ()),
        ("file", RANDOM, 1.0, ()),
        ("old", REGRESSION, 1.0, (3, 4)),
        ("script", SCRIPTED, 1.0, ()),
    ]
    assert [job.experiment.duration_ms for job in jobs[2:4]] == [700, 900]
    assert (jobs[1].experiment.profile, jobs[2].experiment.on) == ("kafka-4.1", "local")
    assert jobs[3].experiment.name == "old"
    assert jobs[4].experiment.scenario == "last-replica-standing:V3b"
    assert [job.is_simulated for job in jobs] == [True, True, False, True, True]


HEAD = '# a plan\n\n[[jobs]]\nname = "a"\nexperiment = "elr-compare"\n\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (HEAD + 'wieght = 2\n', "plan.toml, line 7: no key of a job is called 'wieght'; did you mean 'weight'?"),
        (HEAD + 'weight = "2"\n', "plan.toml, line 7: jobs.weight: expected float, got str"),
        (HEAD + "weight = 0\n", "plan.toml, line 7: jobs.weight: expected float > 0"),
        (HEAD + "seeds = [1, -1]\n", "plan.toml, line 3: job 'a': a seed is a whole number"),
        (HEAD + 'profiles = ["kafka-9"]\n', "line 3: job 'a': .*no profile is called 'kafka-9'"),
        (HEAD + 'world = "mars"\n', "line 3: job 'a': .*no environment is called 'mars'"),
        (HEAD + 'scenario = "x"\n', "line 3: job 'a': give it either an experiment or a scenario"),
        (HEAD + '[[jobs]]\nname = "b"\n', "line 7: job 'b': give it either"),
        (HEAD + '[[jobs]]\nname = "b"\nscenario = "last-replica"', "no scenario is called 'last-replica'"),
        (HEAD + '[[jobs]]\nname = "b"\nexperiment = "elr-comapre"', "line 7: .*did you mean 'elr-compare'?"),
        (HEAD + '[[jobs]]\nname = "b"\nexperiment = "x/y.toml"', "line 7: .*there is no experiment file x/y.toml"),
        (HEAD + '[[jobs]]\nname = "b"\n[jobs.experiment]\nduration = 3\n', "no key of experiment is called"),
        (HEAD + HEAD, "two jobs are called 'a'"),
        (HEAD + '[[jobs]]\nname = "a/b"\nexperiment = "elr-compare"\n', "the name of a job has"),
        ('budget = "2h"\n', "plan.toml, line 1: no key of a plan is called 'budget'"),
        ("", "plan.toml has no jobs"),
        ("jobs = 3\n", "'jobs' must be an array of tables"),
        ("[[jobs\n", "plan.toml is not valid TOML: .*line 1"),
    ],
)  # fmt: skip
def test_an_error_names_the_line(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        _loads(text)


def test_a_missing_plan_is_reported_with_a_command_that_prints_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nightly --print-plan"):
        load_nightly(tmp_path / "none.toml")
    assert DEFAULT_PLAN.is_file()
