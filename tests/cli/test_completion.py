"""`laststand completion`: scripts that shells accept and that know the options."""

import shutil
import subprocess

import pytest

from harness.cli.main import COMMANDS
from tests.cli.cli_helpers import call, refused

FLAGS = ("--profile", "--vary", "--spark-master", "--from-debootstrap", "--until-stdin-closes")


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_a_completion_script_contains_commands_and_options(
    capsys: pytest.CaptureFixture[str], shell: str
) -> None:
    outcome = call(capsys, "completion", shell)
    assert (outcome.code, outcome.err) == (0, "")
    for module in COMMANDS:
        assert module.__name__.rpartition(".")[2] in outcome.out
    for flag in FLAGS:
        # zsh and tcsh scripts may quote or split the dashes.
        assert flag.removeprefix("--") in outcome.out, flag
    assert call(capsys, "completion", shell, "--json").data["script"] in outcome.out


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_the_shell_itself_accepts_the_script(
    capsys: pytest.CaptureFixture[str], shell: str
) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    script = call(capsys, "completion", shell).out
    done = subprocess.run(
        [program, "-n"], input=script, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


COMPLETE = """
COMP_WORDS=({words}); COMP_CWORD={last}
COMP_LINE="{words}"; COMP_POINT=${{#COMP_LINE}}
_shtab_laststand
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("words", "completions"),
    [
        ("laststand repr", {"reproduce"}),
        ("laststand cluster st", {"start", "status", "stop"}),
        ("laststand compare --var", {"--vary"}),
        ("laststand run --profile kafka-3.", {"kafka-3.4", "kafka-3.6", "kafka-3.9"}),
        ("laststand run --on d", {"docker"}),
        ("laststand reproduce last", {"last-replica-standing"}),
        ("laststand run examples/one-is", {"examples/one-isolated-follower.toml"}),
    ],
)
def test_bash_completes_commands_options_values_and_files(
    capsys: pytest.CaptureFixture[str], words: str, completions: set[str]
) -> None:
    script = call(capsys, "completion", "bash").out
    code = script + COMPLETE.format(words=words, last=len(words.split()) - 1)
    done = subprocess.run(
        ["bash", "--norc"], input=code, capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) == completions, done.stderr


def test_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "invalid choice: 'fish'" in refused(capsys, "completion", "fish")
