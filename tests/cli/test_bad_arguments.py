"""A command line that is wrong is refused in one sentence, with exit code 254, before anything is stored."""

from pathlib import Path

import pytest

from harness.cli.main import main
from tests.cli.cli_helpers import call, refused, write

REPRODUCE = ("reproduce", "last-replica-standing", "--no-spark")
COMPARE = ("compare", "--no-spark", "--vary", "profile=kafka-4.0,kafka-4.1")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("reprodcue",), "invalid choice: 'reprodcue'"),
        (("reprodcue",), "did you mean reproduce?"),
        (("--json", "lsit"), "did you mean list?"),
        (("--results", "x", "completion", "bash"), "unrecognized arguments: --results"),
        (("--results",), "unrecognized arguments: --results"),
        (("help", "rnu"), "did you mean run?"),
        (("help", "cluster", "upp"), "did you mean up?"),
        (("explain", "latest"), "there are no runs in"),
        (("list", "--jsn"), "did you mean --json?"),
        (("list", "extra"), "unrecognized arguments: extra"),
        (("doctor", "--wram"), "did you mean --warm?"),
        (("reproduce",), "required: SCENARIO"),
        (("reproduce", "last-replica"), "did you mean 'last-replica-standing'?"),
        ((*REPRODUCE, "--varient", "V3b"), "did you mean --variant?"),
        ((*REPRODUCE, "--variant", "V33"), "did you mean 'V3f'?"),
        ((*REPRODUCE, "--variant", "v3b"), "did you mean 'V3b'?"),
        ((*REPRODUCE, "--profile", "kafka4.0"), "did you mean 'kafka-4.0'?"),
        ((*REPRODUCE, "--prof", "kafka-4.0"), "did you mean --profile?"),
        ((*REPRODUCE, "--seed"), "expected one argument"),
        ((*REPRODUCE, "--seed", "x"), "'x' is not a whole number"),
        ((*REPRODUCE, "--seed", "-1"), "from 0 to 2**63 - 1, not -1"),
        ((*REPRODUCE, "--seed", str(2**63)), "from 0 to 2**63 - 1"),
        ((*REPRODUCE, "--spark-conf", "x"), "--spark-conf takes key=value, not 'x'"),
        ((*REPRODUCE, "--spark-master", "nonsense"), "--spark-master takes local[2]"),
        (("run",), "required: EXPERIMENT"),
        (("run", "nowhere.toml"), "there is no experiment file nowhere.toml"),
        (("run", "."), "cannot read the experiment file"),
        (("check", "latest"), "there are no runs in"),
        (("replay", "latest"), "there are no runs in"),
        (("report", "20260101T000000Z-1"), "no run in"),
        (("check", ""), "no run in"),
        (("check", "/"), "no run in"),
        (("compare", "--no-spark"), "the option --vary is required"),
        (
            (*COMPARE, "--vary", "profile=kafka-4.0,kafka-4.1"),
            "--vary was given twice; give it once",
        ),
        ((*COMPARE, "--hosts", "hosts.toml"), "--hosts is for --on ssh, not for simulation"),
        ((*REPRODUCE, "--hosts", "hosts.toml"), "--hosts is for --on ssh, not for simulation"),
        ((*REPRODUCE, "--all", "--hosts", "hosts.toml"), "--hosts is for --on ssh"),
        (("shrink", "latest", "--hosts", "hosts.toml"), "--hosts is for --on ssh"),
        (("doctor", "--hosts", "hosts.toml"), "--hosts is for --on ssh; leave it out, or add"),
        (("doctor", "--on", "local", "--hosts", "hosts.toml"), "--hosts is for --on ssh, not for"),
        (("serve", "--port", "99999"), "'99999' is more than 65535, the highest port"),
        (("serve", "--port", "-1"), "'-1' is not a whole number of at least 0"),
        ((*COMPARE, "--seeds", "0"), "'0' is not a whole number of at least 1"),
        ((*COMPARE, "--seeds", "-3"), "'-3' is not a whole number of at least 1"),
        ((*COMPARE, "--first-seed", str(2**63 - 1), "--seeds", "2"), "a seed is a whole number"),
        (("swarm", "--no-spark", "--seeds", "0"), "'0' is not a whole number of at least 1"),
        (
            ("swarm", "--guided", "mine.toml"),
            "--guided: 'mine.toml' was taken as the SHARE, a whole number from 1 to 100; put the experiment file",
        ),
        (("swarm", "--guided", "0"), "'0' is not a SHARE from 1 to 100 percent"),
        (("swarm", "--guided", "101%"), "'101%' is not a SHARE from 1 to 100 percent"),
        (("swarm", "--no-spark", "nowhere.toml"), "there is no experiment file"),
        (("swarm", "--no-spark", "--profile", "kafka-9"), "no profile is called 'kafka-9'"),
        (("demo", "--no-spark", "--seeds", "0"), "'0' is not a whole number of at least 1"),
    ],
)
def test_an_invalid_argument_is_refused_in_one_sentence(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: tuple[str, ...],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert sentence in refused(capsys, *arguments)
    assert not list(tmp_path.rglob("run.json")), "nothing was run"


@pytest.mark.parametrize(
    ("vary", "sentence"),
    [
        ("nonsense", "--vary takes a key and at least two different values"),
        ("profile=kafka-4.0", "--vary takes a key and at least two different values"),
        ("profile=kafka-4.0,kafka-4.0", "--vary takes a key and at least two different values"),
        ("profile=kafka-4.0,kafka-9", "did you mean 'kafka-3.9'?"),
        ("profil=kafka-4.0,kafka-4.1", "did you mean 'profile'?"),
        ("topic.nam=a,b", "did you mean 'topic.name'?"),
        ("topc.name=a,b", "did you mean 'topic'?"),
        ("=a,b", "no key of an experiment is called ''"),
        ("foo=1,2", ", elr, features.KEY, properties.KEY)"),
        ("elf=1,2", "did you mean 'elr'?"),
        ("schedule=1,2", "'schedule' must be an array of tables"),
        ("topic.min_insync_replicas=1,two", "'two' is not a whole number"),
        ("cluster.unclean_leader_election=true,maybe", "'maybe' is not true or false"),
        ("cluster.brokers=1,3", "topic.replication_factor is 3, but there are 1 brokers"),
        ("nemesis.faults=power,pover", "did you mean 'power'?"),
    ],
)
def test_an_invalid_vary_option_is_refused_and_leaves_no_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, vary: str, sentence: str
) -> None:
    where = ("--no-spark", "--seeds", "1", "--results", tmp_path)
    assert sentence in refused(capsys, "compare", "--vary", vary, *where)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("list",),
        ("check", "latest"),
        ("report", "latest"),
        ("replay", "latest"),
        REPRODUCE,
        (*COMPARE, "--seeds", "1"),
        ("swarm", "--no-spark", "--seeds", "1"),
        ("demo", "--no-spark", "--seeds", "1"),
    ],
)
def test_a_results_path_that_is_a_file_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    file = write(tmp_path / "file", "precious")
    assert f"--results {file}" in refused(capsys, *arguments, "--results", file)
    assert file.read_text() == "precious"


def test_an_ambiguous_prefix_of_a_run_id_is_refused_with_the_candidates(
    capsys: pytest.CaptureFixture[str], stored: Path
) -> None:
    twin = stored.with_name("20990101T000000Z-2")
    stored.rename(stored.with_name("20990101T000000Z-1"))
    twin.mkdir()
    sentence = refused(capsys, "check", "20990101", "--results", stored.parent.parent)
    assert "20990101T000000Z-1, last-replica-standing-V3b/20990101T000000Z-2" in sentence
    assert "give more of it" in sentence


def test_without_a_command_the_help_is_shown_and_the_exit_code_is_254(
    capsys: pytest.CaptureFixture[str],
) -> None:
    outcome = call(capsys)
    assert outcome.code == 254
    assert "reproduce" in outcome.out


@pytest.mark.parametrize("arguments", [["--help"], ["compare", "--help"], ["--version"]])
def test_help_and_version_exit_with_0(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize("command", ["run", "doctor", "reset"])
def test_every_command_refuses_an_invalid_hosts_file(
    command: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(everything: bool) -> None:
        raise AssertionError("something was removed before the hosts were read")

    monkeypatch.setattr("harness.cli.commands.reset._reset_here", never)
    hosts = write(tmp_path / "hosts.toml", "[[hosts]]\naddress = '192.0.2.1'\nport = 99999\n")
    file = write(tmp_path / "some.toml", "name = 'some'\n")
    words = {
        "run": ["run", file, "--on", "ssh", "--quiet", "--results", tmp_path / "runs"],
        "doctor": ["doctor", "--on", "ssh"],
        "reset": ["reset"],
    }
    assert "ports range from 1 to 65535" in refused(capsys, *words[command], "--hosts", hosts)
