"""What the commands about real worlds do: image, reset, and the doctor's look at a world."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import exit_codes
from harness.contracts.capability import NO, WEAKER, YES
from harness.doctor import Finding
from harness.errors import HarnessFailure, UsageError
from harness.names import unknown_name
from harness.progress import ProgressLine
from harness.runs.experiment import DOCKER, SSH, WORLDS
from harness.runs.record import to_json_line
from nemesis.agent.errors import AgentError

ENGINE, NO_ENGINE, UNREACHABLE = "ok", "none", "unreachable"
"""What `reset --json` says about the Docker engine."""

MARKS = {YES: "ok", WEAKER: "~", NO: "--"}


def image_build(options: argparse.Namespace) -> int:
    """Builds the image of a node."""
    from harness.environments.hosts import image
    from harness.environments.hosts.docker import connect

    if options.base and options.from_debootstrap:
        raise UsageError(
            "--base names a base image and --from-debootstrap makes one; use one of them"
        )
    progress = ProgressLine(quiet=options.quiet)
    engine = connect()
    try:
        base = options.base or image.DEFAULT_BASE
        if options.from_debootstrap:
            base = image.debootstrap_base(engine, progress.say)
        name = image.build(engine, base, progress.say)
    finally:
        engine.close()
    print(to_json_line({"image": name, "base": base}) if options.json else name)
    return exit_codes.VALID


def reset(options: argparse.Namespace) -> int:
    """Removes leftovers of dead runs, here and on hosts.

    Raises:
        HarnessFailure: Something may be left, after all else has been removed.
    """
    if options.hosts:
        from harness.environments.hosts.inventory import load_inventory

        # What is wrong there is said before anything is removed.
        load_inventory(Path(options.hosts))
    here, engine, problem = _reset_here(options.all)
    removed = {"this machine": here}
    if options.hosts:
        from harness.environments.hosts import ssh

        removed |= ssh.reset(Path(options.hosts), everything=options.all)
    if options.json:
        print(to_json_line({"removed": removed, "engine": engine, "problem": problem}))
    else:
        for host, things in removed.items():
            for thing in things:
                print(f"{host}: removed {thing}")
        if not any(removed.values()) and not problem:
            print("nothing was left behind")
        if engine == NO_ENGINE:
            print("there is no Docker engine here, so nobody looked for containers")
    if problem:
        raise HarnessFailure(problem)
    return exit_codes.VALID


def _reset_here(everything: bool) -> tuple[list[str], str, str]:
    """Returns what was removed from this machine, what became of the engine, and why something may be left."""
    from harness.environments.hosts import docker
    from nemesis.agent import state

    # Asked before the files go that say so.
    was_needed = docker.may_have_engine() or state.has_engine_leftovers(docker.STATE_ROOT)
    removed, problem = _reset_engine(everything, was_needed)
    engine = ENGINE if removed is not None else UNREACHABLE if was_needed else NO_ENGINE
    removed = removed or []
    try:
        removed += state.reset(docker.STATE_ROOT, even_if_alive=everything)
    except PermissionError as error:
        raise HarnessFailure(f"leftovers can only be removed by root: {error}") from None
    except AgentError as error:
        raise HarnessFailure(f"something is still in use: {error}") from None
    return removed, engine, problem


def _reset_engine(everything: bool, was_needed: bool) -> tuple[list[str] | None, str]:
    """Returns what was removed of containers and networks, None if nobody looked; and why some may be left."""
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    from harness.environments.hosts import docker

    unseen = "containers and networks could not be looked at and may remain"
    try:
        engine = docker.connect()
    except UsageError as error:
        return None, f"{unseen}: {error}" if was_needed else ""
    try:
        removed, problems = docker.sweep(engine, even_if_alive=everything)
    except (DockerException, RequestException) as error:  # it went away, or is ill
        return None, f"{unseen}: {str(error)[:160]}"
    finally:
        engine.close()
    return removed, f"not removed: {'; '.join(problems)}" if problems else ""


def examine_world(world: str, hosts: str | None) -> list[Finding]:
    """Returns one finding per fault: whether, and with what, it can be done in a world.

    Raises:
        UsageError: There is no such world, or it cannot be reached.
    """
    if world not in WORLDS:
        raise UsageError(unknown_name("world", world, WORLDS))
    if world == DOCKER:
        from harness.environments.hosts import docker

        return _docker_findings() + _findings("", docker.machine_mechanisms())
    if world == SSH:
        from harness.environments.hosts import ssh

        if not hosts:
            raise UsageError("which hosts? use --hosts FILE")
        found = ssh.mechanisms(Path(hosts))
        return [finding for host, what in found.items() for finding in _findings(f"{host} ", what)]
    return []


def _docker_findings() -> list[Finding]:
    import os

    from harness.environments.hosts import docker, image

    findings = [
        Finding(
            name="root",
            is_good=os.geteuid() == 0,
            text="yes" if os.geteuid() == 0 else "no",
            hint="" if os.geteuid() == 0 else "faults are done from outside, by root",
        )
    ]
    try:
        engine = docker.connect()
    except UsageError as error:
        return [*findings, Finding(name="engine", is_good=False, text=str(error))]
    try:
        version = engine.version()
        there = image.has_image(engine)
    finally:
        engine.close()
    findings.append(
        Finding(
            name="engine", is_good=True, text=f"{version['Version']}, {version['KernelVersion']}"
        )
    )
    hint = "" if there else "laststand image build (--from-debootstrap without a registry)"
    findings.append(Finding(name="image", is_good=there, text=image.image_name(), hint=hint))
    return findings


def _findings(prefix: str, mechanisms: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    from nemesis.hosts.capabilities import host_capabilities

    # Something that cannot be done makes runs poorer, not wrong: a run that asks for it says so.
    return [
        Finding(
            name=f"{prefix}{name}",
            is_good=True,
            text=capability.line(),
            mark=MARKS[capability.level],
        )
        for name, capability in host_capabilities(mechanisms).items()
    ]
