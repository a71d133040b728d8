"""New experiment files are valid as written, name every key, and remain valid when a key is uncommented."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.runs.experiment_file import json_schema, loads, to_data
from harness.runs.experiment_template import FAULTS, WIDTH, template
from harness.runs.key_descriptions import describe_keys
from tests.cli.cli_helpers import call, refused

WORKLOADS = ("append", "consumer-group", "transactions")


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_new_file_is_a_valid_experiment_with_random_faults(workload: str) -> None:
    experiment = loads(template("mine", workload), origin="the template")
    assert (experiment.name, experiment.workload_name) == ("mine", workload)
    assert experiment.nemesis.faults == tuple(FAULTS)
    assert not experiment.schedule


@pytest.mark.parametrize("workload", WORKLOADS)
def test_uncommented_settings_are_the_defaults_and_every_key_is_there(workload: str) -> None:
    text = template("mine", workload)
    everything, _, _ = re.sub(r"^#(?! )", "", text, flags=re.M).partition("[[schedule]]")
    assert to_data(loads(everything, origin="all keys")) == to_data(loads(text, origin="as it is"))
    keys = {
        (name, key)
        for name, table in tomllib.loads(everything).items()
        for key in (table if isinstance(table, dict) else [""])
    }
    expected = to_data(loads(text, origin="as it is"))
    del expected["schedule"]
    expected["space"] = {"default": False}
    assert keys == {
        (name, key)
        for name, table in expected.items()
        for key in (table if isinstance(table, dict) else [""])
    }


def test_the_uncommented_schedule_is_one_valid_fault() -> None:
    text = re.sub(r"^#(?! )", "", template("mine"), flags=re.M)
    (fault,) = loads(text, origin="with the schedule").schedule
    assert (fault.fault, fault.targets) == ("isolate", ("leader",))


def test_every_key_of_the_schema_is_described_and_no_line_of_the_file_is_too_long() -> None:
    schema = json_schema()
    for properties in (
        schema["properties"],
        *(one["properties"] for one in schema["$defs"].values()),
    ):
        for key, entry in properties.items():
            assert entry.get("description", "").endswith("."), key
    settings = ("faults", "#faults")
    lines = [line for line in template("mine").splitlines() if not line.startswith(settings)]
    assert max(map(len, lines)) <= WIDTH


def test_descriptions_come_from_the_class_and_its_bases() -> None:
    @dataclass
    class Base:
        """A class.

        Attributes:
            first, second: Both of them:
                on two lines.
            third: Ends here.

        Raises:
            fourth: Not an attribute.
        """

    class Below(Base):
        """Another class.

        Attributes:
            third: Is different here.
        """

    assert describe_keys(Below) == {
        "first": "Both of them: on two lines.",
        "second": "Both of them: on two lines.",
        "third": "Is different here.",
    }


def test_the_command_writes_the_file_and_never_replaces_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(capsys, "new", "mine").out == "mine.toml\n"
    written = (tmp_path / "mine.toml").read_text(encoding="utf-8")
    assert written == template("mine")
    assert "mine.toml exists" in refused(capsys, "new", "mine")
    assert (tmp_path / "mine.toml").read_text(encoding="utf-8") == written
    assert (
        call(capsys, "new", "mine", "-o", "other.toml", "--json").data["experiment"] == "other.toml"
    )
    assert "cannot be written" in refused(capsys, "new", "mine", "-o", tmp_path / "none" / "x.toml")
    assert "'frob'" in refused(capsys, "new", "more", "--workload", "frob")
    assert not (tmp_path / "more.toml").exists()


@pytest.mark.parametrize("name", ["", "a/b", ".."])
def test_a_name_that_cannot_be_a_folder_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        template(name)
