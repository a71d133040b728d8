"""The example in docs/how-to/check-a-system-that-is-not-a-log.md runs as it is printed there."""

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from checkers.models import Operation, check_model, find_model
from checkers.models.registry import MODELS
from harness.contracts.verdict import Validity
from tests.unit.checkers.model_operations import dequeue, enqueue

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/how-to/check-a-system-that-is-not-a-log.md").read_text(encoding="utf-8")


def block(begin: str, end: str) -> str:
    """Returns the indented block between two lines of the page."""
    text = PAGE[PAGE.index(begin) :]
    return textwrap.dedent("    " + text[: text.index(end)].lstrip())


def test_the_example_prints_what_the_page_says_and_draws_the_failure(tmp_path: Path) -> None:
    example = tmp_path / "lock_service.py"
    example.write_text(block("    # lock_service.py", "It prints"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(example)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout == block("    the history is not", "and `failure.svg`").strip() + "\n"
    assert (tmp_path / "failure.svg").read_text(encoding="utf-8").startswith("<svg ")


def test_the_model_of_the_example_accepts_a_correct_history(tmp_path: Path) -> None:
    example = tmp_path / "documented_lock.py"
    example.write_text(block("    # lock_service.py", "It prints"), encoding="utf-8")
    sys.path.insert(0, str(tmp_path))
    try:
        model = find_model("documented_lock:LOCK_SERVICE")
    finally:
        sys.path.remove(str(tmp_path))

    def call(process: str, function: str, at: int, token: int | None, outcome: str) -> Operation:
        return Operation(
            process=process,
            function=function,
            input=("orders", process),
            output=token,
            invoked_ns=at,
            completed_ns=at + 1,
            outcome=outcome,
        )

    history = [call("a", "acquire", 1, 1, "ok"), call("a", "release", 3, None, "info")]
    assert (
        check_model([*history, call("b", "acquire", 5, 2, "ok")], model).validity == Validity.VALID
    )
    assert (
        check_model([*history, call("b", "acquire", 5, 1, "ok")], model).validity
        == Validity.INVALID
    )


def test_the_queue_without_order_accepts_any_order_and_no_value_twice() -> None:
    names: dict[str, Any] = {}
    code = block("    # unordered_queue.py", "With this file")
    exec(compile(code, "page", "exec"), names)  # the project's own page

    def validity(*outputs: str | None, unknown: int = 0) -> Validity:
        history = [enqueue("a", 1, 2), enqueue("b", 3, 4)]
        history += [dequeue(None, 5, None) for _ in range(unknown)]
        history += [dequeue(one, 6 + 2 * at, 7 + 2 * at) for at, one in enumerate(outputs)]
        return check_model(history, names["UNORDERED_QUEUE"]).validity

    assert validity("b", "a", None) == Validity.VALID
    assert validity("b", "b") == validity("b", None) == validity("c") == Validity.INVALID
    assert validity("b", None, unknown=1) == Validity.VALID
    assert validity(None, unknown=1) == Validity.INVALID
    assert validity(None, unknown=2) == Validity.VALID


def test_the_first_example_is_invalid_and_every_model_is_listed() -> None:
    names: dict[str, object] = {}
    code = block(
        "    from checkers.models import Operation, check_model, find_model", "The history is"
    )
    exec(compile(code, "page", "exec"), names)  # the project's own page
    assert getattr(names["result"], "validity") == Validity.INVALID  # noqa: B009
    for name in MODELS.built_in:
        assert f"| `{name}` |" in PAGE
