"""Random schedules: drawn whole before the run, from one seeded stream, so that they can be stored and edited.

A schedule is bursts of overlapping faults with quiet gaps between them. Each seed first draws which families it
uses at all (leaving faults out finds more than mixing everything: swarm testing), then a rhythm, then the faults.
Half of the bursts are *sieges*: two replicas lose their link to the leader, or are isolated, paused or
stopped, one after the other, and then something happens to the only member that is left in the ISR. Replicated
logs lose data close to that state, and independent faults reach it too rarely.

There is one family per kind of fault, and "controller", which does to controllers what is enabled for brokers.
With templates (`nemesis.templates`), half of the bursts are drawn from those.

What is drawn from some families does not depend on which others exist. The family "admin" draws administrative
actions, among those that the system serves. It and "log_dir_error" are used only where they are named.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from harness.simulation.power_cut import draw_mode
from nemesis.drawing import MIN_ISRS, T, min_isr_set
from nemesis.fault import Fault
from nemesis.faults import FAULTS
from nemesis.sizes import draw_params
from nemesis.targets import OF_CONTROLLERS
from nemesis.templates import TEMPLATES, WINDOWS

_FIRST = ("cut", "isolate", "pause", "stop", "kill", "power", "controller")
FAMILIES = (
    *_FIRST,
    *("partition", "reject", "reset_connections", "loss", "delay", "bandwidth"),
    *("restart", "oom", "slow_cpu", "clock_step", "clock_drift", "clock_strobe"),
    *("wipe", "disk_full", "io_error", "slow_disk", "stuck_disk", "read_only", "bit_flip"),
)

ADMIN = "admin"
"""The family of administrative actions, which is not among `FAMILIES`: not every system serves them."""

LOG_DIR = "log_dir_error"
"""The family of failed log directories, which is not among `FAMILIES` either: most brokers have one directory."""

UNCLEAN_SHARE = 0.1
"""This share of the elections that are drawn are unclean: what these lose is excused."""

RARE = frozenset({"wipe", "bit_flip"})
RARE_SHARE = 0.25
"""Each of them destroys a replica, so they are drawn rarely: this share of their draws counts."""

DRAWN_ACTIONS = ("alter_config", "reassign", "move_replica", "elect_leader")
"""A change of a feature level would change what the run promises, so it is not drawn."""

_AWAY = ("cut", "isolate", "pause", "stop", "oom", "stuck_disk", "read_only")
_LEAVE = ("stop", "restart", "kill", "pause")
_STRIKE = (
    *("power", "kill", "stop", "pause"),
    *("restart", "oom", "wipe", "bit_flip", "io_error", "read_only", LOG_DIR),
)
_OF_CONTROLLERS = (
    *("reset_connections", "loss", "delay", "bandwidth", "restart", "oom", "slow_cpu"),
    *("clock_step", "clock_drift", "clock_strobe"),
    *("disk_full", "io_error", "slow_disk", "stuck_disk", "read_only"),
)

TEMPLATE_SHARE = 0.5
"""This share of the bursts is drawn from the templates, where there are any."""

FOCUS_SHARE = 0.75
"""This share of the seeds uses few templates, so that each of them comes more than once."""

FEW = 2
"""That many at most."""

SHARE_OF_FEW = 0.85
"""The share of bursts that are drawn from few templates: what needs several steps must not be disturbed."""

ALONE_HOLDS = 4
"""For so many mean times of a fault no other burst begins if the faults of one wait for each other's events."""

FAULT_COUNT_MAX = 400
"""Longer schedules cannot be read in a report, and the shrinker has to run them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """Mean times of a schedule, in milliseconds of virtual time.

    Attributes:
        gap_ms: Mean quiet time between bursts.
        hold_ms: Mean time that one fault lasts.
        step_ms: Mean time between the faults of one burst.
    """

    gap_ms: int = 1500
    hold_ms: int = 2500
    step_ms: int = 700


def random_schedule(
    stream: Random,
    *,
    families: Sequence[str],
    duration_ms: int,
    partitions: Sequence[str],
    rhythm: Rhythm,
    every_family: bool = False,
    actions: Sequence[str] = (),
    has_controllers: bool = True,
    templates: Sequence[str] = (),
    brokers: Sequence[str] = (),
    controllers: Sequence[str] = (),
    observes_nodes: bool = False,
    log_dirs: int = 1,
) -> tuple[Fault, ...]:
    """Draws a schedule.

    Args:
        stream: The run's "fault" stream.
        families: Enabled families (of `FAMILIES`); each seed uses a random subset that is not empty. There may be
            none if there are templates.
        every_family: Each seed uses all of them instead: for one long run rather than many short ones.
        duration_ms: No fault begins after this time; healing may.
        partitions: Names like "t-0", whose leaders and ISR members are aimed at.
        rhythm: Mean times; each seed scales them by a factor drawn once.
        actions: Administrative actions that the system serves; needed if "admin" is enabled.
        has_controllers: Whether the system has controllers, which partitions of the network may split.
        templates: Enabled templates (of `nemesis.templates.TEMPLATES`); a share of the bursts is drawn from them.
        brokers: The names of all brokers; needed if there are templates.
        controllers: The names of all controllers, likewise; none if the system has none.
        observes_nodes: Whether faults may wait for what happens inside of nodes, as in the simulation.
        log_dirs: How many log directories a broker has.

    Returns:
        Faults in order of `at_ms`, all of them optional. Every fault that needs healing has `for_ms`.
    """
    chosen = [family for family in families if stream.random() < 0.6]
    if families and not chosen:
        chosen = [families[int(stream.random() * len(families))]]
    if every_family:
        chosen = list(families)
    scale = 0.5 + 1.5 * stream.random()
    draw = _Draw(stream, partitions, rhythm, scale, chosen, actions, has_controllers)
    draw.brokers, draw.controllers = brokers, controllers
    draw.observes_nodes, draw.log_dirs = observes_nodes, log_dirs
    used = _some_of(stream, templates)
    share = SHARE_OF_FEW if len(used) <= FEW < len(templates) else TEMPLATE_SHARE
    faults: list[Fault] = []
    at_ms = draw.mean(rhythm.gap_ms)
    while at_ms < duration_ms and len(faults) < FAULT_COUNT_MAX:
        alone_until_ms = 0
        if used and (not chosen or stream.random() < share):
            name = draw.pick(used)
            burst = TEMPLATES[name].draw(draw, at_ms)
            if name in WINDOWS:
                alone_until_ms = at_ms + ALONE_HOLDS * rhythm.hold_ms
        elif stream.random() < 0.5:
            burst = draw.siege(at_ms, chosen)
        else:
            burst = draw.skirmish(at_ms, chosen)
        faults.extend(fault for fault in burst if fault.at_ms < duration_ms)
        last_ms = max((fault.at_ms for fault in burst), default=at_ms)
        at_ms = max(last_ms, alone_until_ms) + draw.mean(rhythm.gap_ms)
    faults.sort(key=lambda fault: fault.at_ms)
    return tuple(
        replace(fault, id=f"f{index}", optional=True)
        for index, fault in enumerate(faults[:FAULT_COUNT_MAX])
    )


def _some_of(stream: Random, templates: Sequence[str]) -> Sequence[str]:
    """Returns the templates that a seed uses: one or two that aim at a narrow window, or most of all."""
    if templates and stream.random() < FOCUS_SHARE:
        names = [name for name in templates if name in WINDOWS] or list(templates)
        count = min(1 + int(stream.random() * FEW), len(names))
        return [names.pop(int(stream.random() * len(names))) for _ in range(count)]
    return [name for name in templates if stream.random() < 0.6] or list(templates)


class _Draw:
    """Draws faults from one stream. Implements `nemesis.drawing.Drawing`."""

    def __init__(
        self,
        stream: Random,
        partitions: Sequence[str],
        rhythm: Rhythm,
        scale: float,
        families: Sequence[str],
        actions: Sequence[str],
        has_controllers: bool,
    ) -> None:
        self.stream = stream
        self.brokers: Sequence[str] = ()
        self.controllers: Sequence[str] = ()
        self.observes_nodes = False
        self.log_dirs = 1
        self.has_controllers = has_controllers
        self.families = families
        self.actions: Sequence[str] = [name for name in actions if name in DRAWN_ACTIONS]
        self.partitions = partitions
        self.rhythm = rhythm
        self.scale = scale

    def mean(self, mean_ms: int) -> int:
        """Returns a time around a mean: at least a fifth of it, at most three times."""
        mean = mean_ms * self.scale
        return int(min(3 * mean, mean / 5 + self.stream.expovariate(1 / (0.8 * mean))))

    def step_ms(self) -> int:
        """Returns a time between two faults of a burst."""
        return self.mean(self.rhythm.step_ms)

    def hold_ms(self) -> int:
        """Returns how long a fault lasts."""
        return self.mean(self.rhythm.hold_ms)

    def partition(self) -> str:
        return self.pick(self.partitions)

    def pick(self, items: Sequence[T]) -> T:
        return items[int(self.stream.random() * len(items))]

    def family(self, families: Sequence[str]) -> str:
        """Returns one of several families; a rare one seldom, if there are others."""
        family = self.pick(families)
        others = [family for family in families if family not in RARE]
        if family in RARE and others and self.stream.random() >= RARE_SHARE:
            return self.pick(others)
        return family

    def skirmish(self, at_ms: int, families: Sequence[str]) -> list[Fault]:
        """Draws one to three independent faults."""
        faults = []
        for _ in range(1 + int(self.stream.random() * 3)):
            fault = self._one(at_ms, self.family(families))
            faults.extend(self._effective(fault, families))
            at_ms += self.mean(self.rhythm.step_ms)
        return faults

    def _effective(self, fault: Fault, families: Sequence[str]) -> list[Fault]:
        """Draws what a fault needs to have an effect, if it is an election.

        The preferred leader mostly leads. So a leader leaves, and the election waits until a broker has joined the
        ISR again. An unclean election waits until there is no leader.
        """
        if fault.fault != "elect_leader":
            return [fault]
        partition = fault.params["partition"]
        if "election" in fault.params:
            return [replace(fault, on=f"leader-loss of {partition}")]
        leave = [family for family in families if family in _LEAVE]
        if not leave:
            return [fault]
        leaves = self.on_node(fault.at_ms, self.pick(leave), (f"leader:{partition}",))
        return [leaves, replace(fault, on=f"isr-expand of {partition}")]

    def siege(self, at_ms: int, families: Sequence[str]) -> list[Fault]:
        """Draws faults that take followers away one by one, then one for the broker that is left."""
        partition = self.partition()
        away = [family for family in families if family in _AWAY]
        strike = [family for family in families if family in _STRIKE]
        if not away:
            return self.skirmish(at_ms, families)
        faults = []
        hold_ms = 2 * self.mean(self.rhythm.hold_ms)
        for _ in range(2):
            family = self.pick(away)
            faults.append(self._away(at_ms, family, partition, hold_ms))
            at_ms += self.mean(self.rhythm.step_ms)
        if strike:
            at_ms += self.mean(self.rhythm.step_ms)
            target = f"last_in_isr:{partition}" if self.stream.random() < 0.7 else "one"
            faults.append(self.on_node(at_ms, self.family(strike), (target,)))
        return faults

    def _away(self, at_ms: int, family: str, partition: str, hold_ms: int) -> Fault:
        follower = f"isr_follower:{partition}"
        if family == "cut":
            return self.fault(
                at_ms,
                "cut",
                (f"leader:{partition}", follower),
                hold_ms,
                planes=("inter-broker",),
            )
        if family == "isolate":
            return self.fault(at_ms, "isolate", (follower,), hold_ms, **self._planes((follower,)))
        return self.fault(at_ms, family, (follower,), hold_ms, **draw_params(family, self.stream))

    def _one(self, at_ms: int, family: str) -> Fault:
        partition = self.partition()
        node = self.pick(
            ("one", f"leader:{partition}", f"isr_follower:{partition}", f"isr_member:{partition}")
        )
        if family == "controller":
            enabled = [family for family in self.families if family in _OF_CONTROLLERS]
            kind = self.pick(("isolate", "kill", "power", "pause", *enabled))
            target = self.pick(("active_controller", "one_controller"))
            if kind == "isolate":  # a controller has no other plane
                hold_ms = self.mean(self.rhythm.hold_ms)
                return self.fault(at_ms, "isolate", (target,), hold_ms)
            return self.on_node(at_ms, kind, (target,))
        if family == "cut":
            pair = (f"leader:{partition}", f"follower:{partition}")
            params = {"direction": "one-way"} if self.stream.random() < 0.3 else {}
            return self.fault(
                at_ms,
                "cut",
                pair,
                self.mean(self.rhythm.hold_ms),
                planes=("inter-broker",),
                **params,
            )
        if family == "reject":
            pair = (f"leader:{partition}", f"follower:{partition}")
            return self.fault(at_ms, "reject", pair, self.mean(self.rhythm.hold_ms))
        if family == "partition":
            return self._partition(at_ms, partition)
        if family == ADMIN:
            return self.action(at_ms, partition)
        return self.on_node(at_ms, family, (node,))

    def action(self, at_ms: int, partition: str) -> Fault:
        """Draws an administrative action."""
        action = self.pick(self.actions)
        if action == "alter_config":
            return min_isr_set(self, at_ms, partition, self.pick(MIN_ISRS))
        if action == "move_replica":
            return self.fault(at_ms, action, (f"isr_member:{partition}",), 0, partition=partition)
        if action == "elect_leader" and self.stream.random() < UNCLEAN_SHARE:
            return self.fault(at_ms, action, (), 0, partition=partition, election="unclean")
        return self.fault(at_ms, action, (), 0, partition=partition)

    def _partition(self, at_ms: int, partition: str) -> Fault:
        shape = self.pick(("halves", "minority", "bridge", "majorities_ring"))
        # Followers send few packets to one another: a leader as the bridge would be separated from no broker.
        first = (f"follower:{partition}",) if shape == "bridge" else ()
        who = self.pick(("all", "both", "controllers")) if self.has_controllers else "all"
        targets = ("all", "controllers") if who == "both" else (who,)
        first = () if who == "controllers" else first
        hold_ms = self.mean(self.rhythm.hold_ms)
        planes = self._planes(targets) if who == "all" else {}
        if planes.get("planes") == ("controller",):
            planes = {}  # there is no such plane between brokers
        return self.fault(at_ms, "partition", (*first, *targets), hold_ms, shape=shape, **planes)

    def on_node(self, at_ms: int, family: str, targets: tuple[str, ...]) -> Fault:
        """Draws a fault of a family on nodes."""
        hold_ms = self.mean(self.rhythm.hold_ms)
        if family == "isolate":
            return self.fault(at_ms, "isolate", targets, hold_ms, **self._planes(targets))
        if family == "power":
            return self.fault(at_ms, "power", targets, hold_ms, mode=draw_mode(self.stream))
        params = draw_params(family, self.stream)
        if family in ("loss", "delay") and self.stream.random() < 0.5:
            params.update(self._planes(targets))
        return self.fault(at_ms, family, targets, hold_ms, **params)

    def _planes(self, targets: Sequence[str]) -> dict[str, object]:
        """Draws the planes of a fault; a controller has one plane only, so all of them are its own."""
        shapes: tuple[tuple[str, ...], ...] = (
            (),
            ("inter-broker",),
            ("controller",),
            ("inter-broker", "controller"),
        )
        planes = self.pick(shapes)
        are_controllers = all(one in OF_CONTROLLERS or one in self.controllers for one in targets)
        return {"planes": planes} if planes and not are_controllers else {}

    def fault(
        self, at_ms: int, fault: str, targets: tuple[str, ...], for_ms: int, **params: object
    ) -> Fault:
        """Returns a fault, which lasts for a time unless it is momentary."""
        return Fault(
            id="drawn",
            fault=fault,
            targets=targets,
            at_ms=at_ms,
            for_ms=None if FAULTS[fault].is_momentary else for_ms,
            params=params,
        )
