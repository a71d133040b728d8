"""Files of nodes are copied from hosts through their agents, whatever their length."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.environments.hosts.ssh import copy_lines
from nemesis.agent.client import AgentClient, LocalStream
from nemesis.agent.server import TAIL_BYTES_MAX
from system_under_test.real.message_log import read_lines


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "state" / "run"


@pytest.fixture
def agent(run: Path) -> Iterator[AgentClient]:
    client = AgentClient(LocalStream(run), "here")
    yield client
    client.close()


def test_a_long_file_with_unfinished_blocks_is_copied_line_by_line(
    agent: AgentClient, run: Path, tmp_path: Path
) -> None:
    lines = [f"{number} {'x' * 90}" for number in range(3 * TAIL_BYTES_MAX // 100)]
    text = "".join(f"{line}\n" for line in lines)
    middle = text.index("\n", len(text) // 2) + 1
    zeros = "\0" * 300
    (run / "logs").mkdir(parents=True, exist_ok=True)
    (run / "logs" / "messages.log").write_text(f"{text[:middle]}{zeros}{text[middle:]}{zeros}")
    target = tmp_path / "copy"
    asyncio.run(copy_lines(agent, "logs/messages.log", target))
    assert list(read_lines(target.read_bytes())) == lines


def test_a_missing_file_is_not_made(agent: AgentClient, run: Path, tmp_path: Path) -> None:
    asyncio.run(copy_lines(agent, "logs/messages.log.1", tmp_path / "copy"))
    assert not (tmp_path / "copy").exists()
