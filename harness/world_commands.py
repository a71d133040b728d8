"""What the commands about real worlds do: image, reset, and the doctor's look at a world."""

import argparse
from pathlib import Path

from harness import exit_codes
from harness.agent.errors import AgentError
from harness.contracts.capability import NO, WEAKER, YES, Capability
from harness.doctor import Finding
from harness.errors import HarnessFailure, UsageError
from harness.experiment import DOCKER, SSH, WORLDS
from harness.names import unknown_name
from harness.pipeline import to_json_line
from harness.progress import ProgressLine

MARKS = {YES: "ok", WEAKER: "~", NO: "--"}


def image_build(options: argparse.Namespace) -> int:
    """Builds the image of a node."""
    from harness.environments import image
    from harness.environments.docker_hosts import connect

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
    """Removes leftovers of dead runs, here and on hosts."""
    removed: dict[str, list[str]] = {"this machine": _reset_here(options.all)}
    if options.hosts:
        from harness.environments import ssh_hosts

        removed |= ssh_hosts.reset(Path(options.hosts), everything=options.all)
    if options.json:
        print(to_json_line({"removed": removed}))
        return exit_codes.VALID
    for host, things in removed.items():
        for thing in things:
            print(f"{host}: removed {thing}")
    if not any(removed.values()):
        print("nothing was left behind")
    return exit_codes.VALID


def _reset_here(everything: bool) -> list[str]:
    from harness.agent import state
    from harness.environments import docker_hosts

    removed: list[str] = []
    try:
        engine = docker_hosts.connect()
    except UsageError:
        engine = None  # without an engine there can be no container, but there can be a mount
    if engine is not None:
        try:
            removed += docker_hosts.remove_leftovers(engine, even_if_alive=everything)
        finally:
            engine.close()
    try:
        removed += state.reset(docker_hosts.STATE_ROOT, even_if_alive=everything)
    except PermissionError as error:
        raise HarnessFailure(f"leftovers can only be removed by root: {error}") from None
    except AgentError as error:
        raise HarnessFailure(f"something is still in use: {error}") from None
    return removed


def examine_world(world: str, hosts: str | None) -> list[Finding]:
    """Returns one finding per fault: whether, and with what, it can be done in a world.

    Raises:
        UsageError: There is no such world, or it cannot be reached.
    """
    if world not in WORLDS:
        raise UsageError(unknown_name("world", world, WORLDS))
    if world == DOCKER:
        from harness.environments import docker_hosts

        return _docker_findings() + _findings("", docker_hosts.docker_mechanisms())
    if world == SSH:
        from harness.environments import ssh_hosts

        if not hosts:
            raise UsageError("which hosts? use --hosts FILE")
        found = ssh_hosts.mechanisms(Path(hosts))
        return [finding for host, what in found.items() for finding in _findings(f"{host} ", what)]
    return []


def _docker_findings() -> list[Finding]:
    import os

    from harness.environments import docker_hosts, image

    findings = [
        Finding(
            name="root",
            is_good=os.geteuid() == 0,
            text="yes" if os.geteuid() == 0 else "no",
            hint="" if os.geteuid() == 0 else "faults are done from outside, by root",
        )
    ]
    try:
        engine = docker_hosts.connect()
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


def _findings(prefix: str, capabilities: dict[str, Capability]) -> list[Finding]:
    # Something that cannot be done makes runs poorer, not wrong: a run that asks for it says so.
    return [
        Finding(
            name=f"{prefix}{name}",
            is_good=True,
            text=capability.line(),
            mark=MARKS[capability.level],
        )
        for name, capability in capabilities.items()
    ]
