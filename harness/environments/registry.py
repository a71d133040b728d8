"""The environments of a cluster. Only this module compares their names; all others read these values.

Importing it is cheap: what an environment needs (Docker, SSH) is loaded when a cluster is made.
"""

from collections.abc import Mapping
from dataclasses import dataclass

KERNEL_DISKS = ("ext4", "xfs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One environment.

    Attributes:
        name: As in an experiment's `on`.
        summary: A few words for help texts.
        is_simulated: Whether time is virtual and one seed decides everything.
        can_run_scenarios: Whether links and power can be cut, which scripted scenarios need.
        needs_inventory: Whether a file of hosts must be given.
        has_containers: Whether nodes are containers of an engine on this machine.
        disks: Models or kinds of file systems that nodes can have.
        module: The module that makes clusters: it has `make_cluster` and `find_mechanisms` (`harness.runs.real`).
            Empty for the simulation, which `harness.runs.simulated` makes.
        injector: The module that injects faults in such clusters: it has `make_injector` and `impossible_faults`.
    """

    name: str
    summary: str
    is_simulated: bool = False
    can_run_scenarios: bool = True
    needs_inventory: bool = False
    has_containers: bool = False
    disks: tuple[str, ...] = KERNEL_DISKS
    module: str = ""
    injector: str = ""


_ALL = (
    Environment(
        name="simulation",
        summary="a deterministic simulation",
        is_simulated=True,
        disks=(*KERNEL_DISKS, "posix-strict"),
    ),
    Environment(
        name="local",
        summary="processes on this machine",
        can_run_scenarios=False,
        disks=(*KERNEL_DISKS, "posix-strict"),
        module="harness.environments.local.cluster",
        injector="nemesis.local.injector",
    ),
    Environment(
        name="docker",
        summary="containers",
        has_containers=True,
        module="harness.environments.hosts.docker",
        injector="nemesis.hosts.injector",
    ),
    Environment(
        name="ssh",
        summary="hosts over SSH",
        needs_inventory=True,
        module="harness.environments.hosts.ssh",
        injector="nemesis.hosts.injector",
    ),
)

ENVIRONMENTS: Mapping[str, Environment] = {one.name: one for one in _ALL}
"""Every environment by name, the default first."""

DEFAULT = _ALL[0].name
