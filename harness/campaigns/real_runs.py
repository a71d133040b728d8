"""Limits of runs in real environments, and the removal of what a run left whose process was killed.

A real run has limits of its own: when a phase takes too long, the run ends with the verdict `unknown`. What they
do not cover is a call that never returns, for example to a container engine that hangs. The limit here covers
that. It is longer than all limits of the phases together, so that a slow run is never ended by it.
"""

import json
import os
import signal
from pathlib import Path

from harness.campaigns.forked import run_in_child
from harness.runs.experiment import Experiment
from harness.runs.real import SCENARIO_LIMIT_MS, START_LIMIT_MS

HANG_FACTOR = 3.0
"""With 3, the limit is longer than the limits of the phases together: those of the main phase are twice its
length and the time to start."""

STOP_S = 45.0
"""A run that is ended removes its nodes within seconds; the driver waits a minute for the worker (`crew.py`)."""

REMOVAL_S = 120.0
"""An engine that hangs must not stop the campaign a second time."""

AGENT_END_S = 10.0
"""An agent heals what harms the host when its harness dies, and ends."""


def planned_s(experiment: Experiment) -> float:
    """Returns how long a real run is planned to take at most: its start, its main phase, and its final phase."""
    start_ms = START_LIMIT_MS * experiment.time_scale
    scenario_ms = SCENARIO_LIMIT_MS * experiment.time_scale
    main_ms = scenario_ms if experiment.scenario else experiment.main_phase_ms
    return (start_ms + main_ms + experiment.final_phase_max_ms) / 1e3


def hang_limit_s(experiment: Experiment, factor: float = HANG_FACTOR) -> float:
    """Returns after how many seconds a real run hangs."""
    return factor * planned_s(experiment)


def remove_rest(experiment: Experiment, pid: int, directory: Path) -> list[str]:
    """Removes what a run left whose process was killed: processes, containers, networks, disks.

    Only what belongs to this run is removed; on hosts, also what belongs to other runs whose harness is dead.

    Args:
        experiment: What was run.
        pid: The process that ran it, which is gone.
        directory: The run's directory.

    Returns:
        Why something may be left, one sentence each.
    """
    ended = run_in_child(lambda: "\n".join(_removed(experiment, pid, directory)), REMOVAL_S)
    if ended.text is None or ended.was_killed:
        return ["what it left could not be removed; `laststand reset` removes it"]
    return ended.text.splitlines()


def _removed(experiment: Experiment, pid: int, directory: Path) -> list[str]:
    problems: list[str] = []
    _end_processes(directory)
    try:
        if experiment.environment.has_containers:
            problems += _remove_containers(pid)
        if experiment.environment.needs_inventory:
            _reset_hosts(Path(experiment.inventory))
    except Exception as error:  # the edge of a child: the campaign goes on
        problems.append(f"{type(error).__name__}: {error}")
    return [f"not removed: {' '.join(problem.split())}" for problem in problems]


def _end_processes(directory: Path) -> None:
    """Kills the nodes on this machine that the run left: a stopped one does not notice that its harness is gone.

    Nodes lead sessions of their own and have files of the run's directory in their command line.
    """
    below = os.fsencode(directory.resolve()) + b"/"
    for path in Path("/proc").glob("[0-9]*"):
        pid = int(path.name)
        try:
            if below in (path / "cmdline").read_bytes() and os.getsid(pid) == pid:
                os.kill(pid, signal.SIGKILL)
        except OSError:
            continue  # it has ended, or belongs to another user


def _remove_containers(pid: int) -> list[str]:
    """Removes the containers, networks and disks of a process; returns what could not be removed."""
    from harness.environments.hosts import docker
    from nemesis.agent import state
    from nemesis.agent.errors import AgentError

    # The names of runs begin with the pid of their harness.
    runs = sorted(docker.STATE_ROOT.glob(f"{pid:x}-*"))
    for run in runs:
        _end_agent(run / state.OWNER_FILE)
    engine = docker.connect()
    try:
        problems = [text for run in runs for text in docker.remove_run(engine, run.name)]
    finally:
        engine.close()
    for run in runs:
        try:
            state.remove_run(run)
        except AgentError as error:
            problems.append(str(error))
    return problems


def _end_agent(owner_file: Path) -> None:
    """Waits until the agent of a run has ended, and kills it if it hangs too."""
    from nemesis.agent.processes.signals import ProcessId, send, wait_gone

    try:
        owner = json.loads(owner_file.read_text(encoding="utf-8"))
        agent = ProcessId(pid=int(owner["pid"]), began=int(owner["began"]))
    except (OSError, ValueError, KeyError, TypeError):
        return  # it has recorded nothing yet, so it has made nothing
    if not wait_gone(agent, AGENT_END_S):
        send(agent, signal.SIGKILL)
        wait_gone(agent, AGENT_END_S)


def _reset_hosts(inventory: Path) -> None:
    from harness.environments.hosts import ssh

    ssh.reset(inventory)
