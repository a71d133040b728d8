"""`laststand reset`: removes leftovers of dead runs, on this machine and on hosts."""

import argparse
from pathlib import Path

from harness import exit_codes
from harness.cli.options import Subcommands, add_command, add_hosts_option
from harness.cli.output import print_json
from harness.errors import HarnessFailure, UsageError
from results.text import plain

ENGINE, NO_ENGINE, UNREACHABLE = "ok", "none", "unreachable"
"""State of the Docker engine, as `reset --json` reports it."""

UNCHECKED = "containers and networks could not be checked and may remain"


def add_parser(commands: Subcommands) -> None:
    """Adds the command."""
    parser = add_command(
        commands,
        "reset",
        reset,
        "remove what is left of runs whose harness is dead",
        stores_runs=False,
    )
    add_hosts_option(parser, "also clean the hosts of this TOML file")
    parser.add_argument(
        "--all",
        action="store_true",
        help="also remove what belongs to runs in progress, or to probes of the last ten minutes",
    )


def reset(options: argparse.Namespace) -> int:
    """Removes leftovers of dead runs, here and on hosts.

    Raises:
        HarnessFailure: Something may be left, after all else has been removed.
    """
    if options.hosts:
        from harness.environments.hosts.inventory import load_inventory

        # Errors in the file are reported before anything is removed.
        load_inventory(Path(options.hosts))
    here, engine, problem = _reset_here(options.all)
    removed = {"this machine": here}
    if options.hosts:
        from harness.environments.hosts import ssh

        removed |= ssh.reset(Path(options.hosts), everything=options.all)
    if options.json:
        print_json({"removed": removed, "engine": engine, "problem": problem})
    else:
        for host, things in removed.items():
            for thing in things:
                print(plain(f"{host}: removed {thing}"))
        if not any(removed.values()) and not problem:
            print("nothing was left to remove")
        if engine == NO_ENGINE:
            print("containers were not checked: there is no Docker engine on this machine")
    if problem:
        raise HarnessFailure(problem)
    return exit_codes.VALID


def _reset_here(everything: bool) -> tuple[list[str], str, str]:
    """Returns what was removed from this machine, the engine's state, and why something may be left."""
    from harness.cli import probe_leftovers
    from harness.environments.hosts import docker
    from nemesis.agent import state
    from nemesis.agent.errors import AgentError

    # Determined first: it depends on files that the reset removes.
    was_needed = docker.may_have_engine() or state.has_engine_leftovers(docker.STATE_ROOT)
    removed, problem = _reset_engine(everything, was_needed)
    engine = ENGINE if removed is not None else UNREACHABLE if was_needed else NO_ENGINE
    removed = removed or []
    try:
        removed += state.reset(docker.STATE_ROOT, even_if_alive=everything)
        removed += probe_leftovers.reset(docker.STATE_ROOT, even_if_alive=everything)
    except PermissionError as error:
        raise HarnessFailure(f"leftovers can only be removed by root: {error}") from None
    except AgentError as error:
        raise HarnessFailure(f"a leftover is still in use: {error}") from None
    return removed, engine, problem


def _reset_engine(everything: bool, was_needed: bool) -> tuple[list[str] | None, str]:
    """Returns the removed containers and networks, None if they could not be checked, and why some may be left."""
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    from harness.environments.hosts import docker

    try:
        engine = docker.connect()
    except UsageError as error:
        return None, f"{UNCHECKED}: {error}" if was_needed else ""
    try:
        removed, problems = docker.sweep(engine, even_if_alive=everything)
    except (DockerException, RequestException) as error:  # the engine stopped, or does not work
        return None, f"{UNCHECKED}: {str(error)[:160]}"
    finally:
        engine.close()
    return removed, f"not removed: {'; '.join(problems)}" if problems else ""
