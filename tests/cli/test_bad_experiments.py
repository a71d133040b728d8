"""A wrong experiment file is refused in one sentence with the file, the key and a suggestion."""

from pathlib import Path

import pytest

from tests.cli.cli_helpers import call, refused, write

FAULT = '[[schedule]]\nfault = "isolate"\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('name = "a\nprofile = "kafka-4.0"', "is not valid TOML"),
        ('weather = "calm"\nduration_ms = = 4', "(at line 2, column 15)"),
        ('profle = "kafka-4.0"', "did you mean 'profile'?"),
        ('profile = "kafka-5"', "no profile is called 'kafka-5'"),
        ("profile = 4", "experiment.profile is 4: expected str, got int"),
        ('weather = "story"', "did you mean 'stormy'?"),
        ('timings = "slow"', "no timings is called 'slow' (known: fast, kafka)"),
        ('scenario = "last-replica-standing:V99"', "no variant of last-replica-standing"),
        ('scenario = "last-replica"', "did you mean 'last-replica-standing'?"),
        ('disabled_rules = ["HW-11"]', "no switchable rule is called 'HW-11'"),
        ("duration_ms = -1", "experiment.duration_ms must not be negative"),
        ("duration_ms = 0", "experiment.duration_ms is 0: expected int >= 1"),
        ("duration_ms = 1.5", "experiment.duration_ms is 1.5: expected int, got float"),
        ("duration_ms = true", "experiment.duration_ms is true: expected int, got bool"),
        ('name = "../x"', "cannot be the name of an experiment"),
        ('name = "latest"', "cannot be the name of an experiment"),
        ("cluster = 3", "'cluster' must be a table"),
        ("[cluster]\nbroker = 3", "did you mean 'brokers'?"),
        ("[cluster]\nbrokers = 0", "cluster.brokers is 0: expected int >= 1"),
        ("[cluster]\nbrokers = 11", "cluster.brokers is 11: expected int <= 10"),
        ('[cluster]\ndisk = "zfs"', "did you mean 'xfs'?"),
        (
            '[topic]\nmin_insync_replicas = "many"',
            'topic.min_insync_replicas is "many": expected int',
        ),
        ('[properties]\n"replica.lag.time.max.ms" = "many"', "use a whole number of 64 bits"),
        (
            '[properties]\n"replica.lag.time.max.ms" = [1, 2]',
            "properties.replica.lag.time.max.ms is [1, 2]: expected bool | int | float | str, got array",
        ),
        (
            '[space]\n"properties.replica.lag.time.max.ms" = ["2000", "many"]',
            "the space draws properties.replica.lag.time.max.ms=many",
        ),
        (
            'system = "apache-kafka"\non = "local"\n[features]\n"kraft.version" = "x"',
            'features.kraft.version is "x": expected int, got str',
        ),
        (
            '[[schedule]]\nfault = "alter_config"\n[schedule.params]\ntopic = "t"\n'
            'key = "min.insync.replicas"\nvalue = "many"',
            "fault f0: 'many' is not a valid value of min.insync.replicas: use a whole number",
        ),
        ("[topic]\nreplication_factor = 4", "but there are 3 brokers; choose 1 to 3"),
        ("[topic]\nmin_insync_replicas = 0", "topic.min_insync_replicas is 0: expected int >= 1"),
        ('[topic]\nname = "a/b"', "topic.name is 'a/b'"),
        ('[topic]\nname = "__cluster_metadata"', "are reserved"),
        ('[workload]\nacks = ["al"]', "did you mean 'all'?"),
        ("[workload]\nacks = []", "workload.acks must name at least one"),
        ("[workload]\nappends_per_s = nan", "must be a finite number, not nan"),
        ("[workload]\nprocesses = 0", "workload.processes is 0; choose 1 to 1000"),
        ('[nemesis]\nfaults = ["pover"]', "did you mean 'power'?"),
        ("[nemesis]\ngap_ms = 0", "nemesis.gap_ms is 0: expected int >= 1"),
        ("schedule = 3", "'schedule' must be an array of tables"),
        ("schedule = [3]", "'schedule' must be an array of tables"),
        ('[[schedule]]\ntargets = ["b1"]', "scheduled fault f0 has no key 'fault'"),
        ('[[schedule]]\nfault = "isolat"\ntargets = ["b1"]', "did you mean 'isolate'?"),
        (FAULT, "needs at least one target"),
        (
            FAULT + 'targets = ["b1"]\nat = 3',
            "no key of a scheduled fault is called 'at'; did you mean 'at_ms'?",
        ),
        (FAULT + 'targets = ["b1"]\nat_ms = -5', "at_ms must be >= 0"),
        (FAULT + 'targets = ["b1"]\nat_ms = 99999', "comes at 99999 ms, but the faults end"),
        (FAULT + 'targets = ["b9"]', "no node or selector is called 'b9'; did you mean 'b3'?"),
        (FAULT + 'targets = ["leadr:t-0"]', "did you mean 'leader'?"),
        (FAULT + 'targets = ["leader:t-1"]', "no partition is called 't-1'; did you mean 't-0'?"),
        (FAULT + 'targets = ["b1"]\nparams = { planes = ["foo"] }', "no plane is called 'foo'"),
        (FAULT + 'targets = ["b1"]\nparams = { plane = "client" }', "did you mean 'planes'?"),
        ('[[schedule]]\nfault = "cut"\ntargets = ["b1"]', "a cut needs at least two targets"),
        (
            '[[schedule]]\nfault = "power"\ntargets = ["b1"]\nparams = { mode = "lose_al" }',
            "did you mean 'lose_all'?",
        ),
        (
            '[[schedule]]\nfault = "power"\ntargets = ["b1"]\nparams = { keep_records = "five" }',
            "keep_records must be a whole number, 0 or more",
        ),
        ('[[schedule]]\nfault = "kill"\ntargets = ["client-0"]', "client-0 is a client"),
        (
            '[[schedule]]\nfault = "heal"\nparams = { faults = ["f7"] }',
            "no fault of the schedule is called 'f7' (there are none)",
        ),
        (
            FAULT + 'targets = ["b1"]\n[[schedule]]\nfault = "heal"\nparams = { faults = ["f7"] }',
            "no fault of the schedule is called 'f7'; did you mean 'f0'? (known: f0)",
        ),
        (
            (FAULT + 'id = "a"\ntargets = ["b1"]\n') * 2,
            "two faults of the schedule are called 'a'",
        ),
    ],
)
def test_an_invalid_experiment_is_refused_before_anything_is_stored(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, sentence: str
) -> None:
    file = write(tmp_path / "mine.toml", text)
    results = tmp_path / "runs"
    assert sentence in refused(capsys, "run", file, "--no-spark", "--quiet", "--results", results)
    assert not results.exists() or list(results.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("x = = 1", "mine.toml is not valid TOML"), ('profle = "a"', "mine.toml: no key")],
)
def test_the_error_names_the_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, sentence: str
) -> None:
    assert sentence in refused(capsys, "run", write(tmp_path / "mine.toml", text))


MARKED = 'id = "x7"\nfault = "pause"\ntargets = ["one"]\nfor_ms = 100\n'
HELD = '[[schedule]]\nid = "x7"\nfault = "hold_messages"\nfor_ms = 100\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            MARKED + 'on = "mark:elected-from-erl"',
            "did you mean 'elected-from-elr'? (docs/marks.md",
        ),
        (MARKED + 'until = "mark:elected-from-erl"', "did you mean 'elected-from-elr'?"),
        (MARKED + 'on = "sent:FetchRespons"', "did you mean 'FetchResponse'? (docs/protocol.md"),
        (MARKED + 'until = "received:Fech"', "no message is called 'Fech'"),
        (MARKED + 'on = "isr-shrnk"', "no event is called 'isr-shrnk'"),
        (MARKED + 'on = "registration at b9"', "no node or role is called 'b9'"),
        (MARKED + 'on = "isr-shrink of t-9"', "no partition is called 't-9'"),
        (MARKED.replace("one", "leadr"), "no node or selector is called 'leadr'"),
        (MARKED.replace("one", "leader:t-9"), "no partition is called 't-9'"),
        (MARKED.replace("pause", "paus"), "no fault is called 'paus'"),
        (HELD + 'params = { messages = "AlterPartitin" }', "did you mean 'AlterPartition'?"),
        (HELD + 'params = { messages = "Fetch to b9" }', "no node or role is called 'b9'"),
    ],
)
@pytest.mark.parametrize("command", ["run", "swarm"])
def test_an_error_of_the_schedule_names_the_file_and_the_fault(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str, text: str, sentence: str
) -> None:
    text = text if text.startswith("[[") else "[[schedule]]\n" + text
    file = write(tmp_path / "mine.toml", text)
    where = ("--no-spark", "--quiet", "--results", tmp_path / "runs")
    error = refused(capsys, command, file, *where)
    assert f"{file}: fault x7: " in error
    assert sentence in error


def test_a_night_names_its_plan_its_job_and_the_fault(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write(tmp_path / "mine.toml", "[[schedule]]\n" + MARKED + 'on = "mark:elected-from-erl"')
    plan = write(tmp_path / "plan.toml", '[[jobs]]\nname = "j"\nexperiment = "mine.toml"\n')
    error = refused(
        capsys, "nightly", plan, "--runs", 1, "--no-spark", "--results", tmp_path / "runs"
    )
    assert f"{plan}: job 'j': fault x7: no mark is called 'elected-from-erl'" in error


def test_a_binary_file_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_bytes(b"\xff\xfe\x00")
    assert "cannot read the experiment file" in refused(capsys, "run", file)


def test_a_swarm_with_an_invalid_schedule_is_refused_before_it_starts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = write(tmp_path / "mine.toml", FAULT + 'targets = ["b9"]')
    where = ("--no-spark", "--results", tmp_path / "runs")
    assert "called 'b9'" in refused(capsys, "swarm", file, *where)


def test_print_config_prints_the_resolved_experiment_which_is_a_valid_experiment(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = write(tmp_path / "mine.toml", 'weather = "calm"\n' + FAULT + 'targets = ["leader"]\n')
    printed = call(capsys, "run", file, "--profile", "kafka-3.9", "--print-config")
    assert printed.code == 0
    again = call(capsys, "run", write(tmp_path / "again.toml", printed.out), "--print-config")
    assert again.out == printed.out
    assert 'profile = "kafka-3.9"' in printed.out
    data = call(capsys, "run", file, "--print-config", "--json").data
    assert data["weather"] == "calm"
    assert data["schedule"][0]["targets"] == ["leader"]
