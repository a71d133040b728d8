"""Where a cluster can live. Only this module compares names of environments; all others read these values.

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
        disks: Models or kinds of file systems that nodes can have.
        cluster: "module:function" that makes a cluster; see `harness.runs.real`.
        injector: "module:function" that makes the fault injector of a cluster.
    """

    name: str
    summary: str
    is_simulated: bool = False
    can_run_scenarios: bool = True
    needs_inventory: bool = False
    disks: tuple[str, ...] = KERNEL_DISKS
    cluster: str
    injector: str


_ALL = (
    Environment(
        name="simulation",
        summary="a deterministic simulation",
        is_simulated=True,
        disks=(*KERNEL_DISKS, "posix-strict"),
        cluster="harness.environments.simulated.cluster:SimulatedCluster",
        injector="nemesis.simulated.injector:make_injector",
    ),
    Environment(
        name="local",
        summary="processes on this machine",
        can_run_scenarios=False,
        disks=(*KERNEL_DISKS, "posix-strict"),
        cluster="harness.environments.local.cluster:make_cluster",
        injector="nemesis.local.injector:make_injector",
    ),
    Environment(
        name="docker",
        summary="containers",
        cluster="harness.environments.hosts.docker:make_cluster",
        injector="nemesis.hosts.injector:make_injector",
    ),
    Environment(
        name="ssh",
        summary="hosts over SSH",
        needs_inventory=True,
        cluster="harness.environments.hosts.ssh:make_cluster",
        injector="nemesis.hosts.injector:make_injector",
    ),
)

ENVIRONMENTS: Mapping[str, Environment] = {one.name: one for one in _ALL}
"""Every environment by name, the default first."""

DEFAULT = _ALL[0].name
