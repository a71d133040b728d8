"""The faults of the vocabulary, as commands to the agents of the hosts (nemeses.md).

Every fault has three parts: `inject` returns when it is in force, `heal` removes exactly what it added, `effect`
tells what shows that it bit. What an injection has to remember is in `InForce.token`.
"""

import asyncio
import contextlib
import itertools
import time
import zlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from harness.agent.client import AgentGoneError
from harness.agent.errors import AgentError
from harness.contracts.environment import Effect, InForce
from harness.environments.real import HARNESS_HOST, STOP_GRACE_MS
from nemesis.fault import OUTAGES
from nemesis.shapes import affected_pairs

if TYPE_CHECKING:
    from harness.environments.hosts import HostCluster, HostNode

PROBE_LIMIT_MS = 250
FREEZE_WATCHDOG_S = 120.0
STUCK_BIT_MS = 50
RATE_OF_ONE_PROCESS = (0.5, 1.5)
STEP_SEEN = 0.5
"""A step counts as seen when the node shows at least so much of it."""

Inject = Callable[[tuple[str, ...], Mapping[str, Any], str], Awaitable[InForce]]
Rules = dict[str, list[dict[str, Any]]]


class HostFaults:
    """Injects, heals and proves faults. Mutable: it knows what is in force.

    Args:
        cluster: Whose nodes.
    """

    def __init__(self, cluster: "HostCluster") -> None:
        self._cluster = cluster
        self._count = 0
        self._skewed: dict[str, str] = {}
        self._in_force: dict[str, InForce] = {}
        self._inject: dict[str, Inject] = {
            **dict.fromkeys(
                ("cut", "isolate", "partition", "reject", "loss", "delay"), self._packets
            ),
            "bandwidth": self._bandwidth,
            "reset_connections": self._reset_connections,
            "pause": self._pause,
            "stop": self._stop,
            "kill": self._kill,
            "restart": self._restart,
            "start": self._start,
            "oom": self._oom,
            "slow_cpu": self._slow_cpu,
            "power": self._power,
            **dict.fromkeys(("clock_step", "clock_drift", "clock_strobe"), self._clock),
            "wipe": self._wipe,
            "bit_flip": self._bit_flip,
            "disk_full": self._disk_full,
            "io_error": self._io_error,
            "slow_disk": self._slow_disk,
            "stuck_disk": self._stuck_disk,
            "read_only": self._read_only,
        }

    # -- the contract

    async def inject(
        self, fault: str, nodes: tuple[str, ...], params: Mapping[str, Any]
    ) -> InForce:
        """Injects a fault; returns when it is in force on the nodes that it can hit."""
        self._count += 1
        token = f"{self._cluster.seed}_{self._count}"
        began_ns = time.monotonic_ns()
        try:
            in_force = await self._inject[fault](nodes, {**params, "fault": fault}, token)
        except (AgentError, AgentGoneError):
            await self._undo(nodes, token)
            raise
        took_ms = round((time.monotonic_ns() - began_ns) / 1e6, 2)
        in_force.evidence.setdefault("took_ms", took_ms)
        if in_force.token is None:
            in_force.token = {}
        in_force.token |= {"token": token, "fault": fault}
        if in_force.nodes:
            self._in_force[token] = in_force
        return in_force

    async def _undo(self, nodes: Iterable[str], token: str) -> None:
        """Cleans up after an injection that failed half-way: rules go, processes run or are known to be gone."""
        self._in_force.pop(token, None)
        for name in nodes:
            if self._skewed.get(name) == token:
                del self._skewed[name]
            node = self._cluster.nodes.get(name)
            if node is None:
                continue
            node.excuses.pop(token, None)
            with contextlib.suppress(AgentError, AgentGoneError):
                await node.agent.ask("net_remove", token=token, nodes=[name])
                await node.agent.ask("resume", node=name)
                if not (await node.agent.ask("status", node=name))["alive"]:
                    self._cluster.process_is_gone(name)
                else:
                    self._cluster.is_expected_up(name)

    async def heal(self, fault: str, in_force: InForce) -> None:
        """Removes what an injection added. Idempotent: what is gone is not removed again."""
        token = (in_force.token or {}).get("token", "")
        if self._in_force.pop(token, None) is None:
            return
        how = getattr(self, f"_heal_{_FAMILY_OF.get(fault, fault)}", None)
        if how is not None:
            await how(in_force, token)
        for name in in_force.nodes:
            if name in self._cluster.nodes:
                self._cluster.no_longer_excused(name, token)
        await self._start_dead(fault, in_force)

    async def effect(self, fault: str, in_force: InForce) -> Effect:
        """Returns whether the fault bit, asking whoever saw it."""
        how = getattr(self, f"_effect_{_FAMILY_OF.get(fault, fault)}", None)
        if how is not None:
            await how(in_force, in_force.token["token"])
        evidence = dict(in_force.evidence)
        return Effect(bit=bool(evidence.get("bit")), evidence=evidence)

    def excused_end(self, token: str, name: str, words: str) -> bool:
        """Notes that a node ended because of a fault; returns whether that is still in force."""
        in_force = self._in_force.get(token)
        if in_force is not None:
            in_force.evidence.setdefault("ended_by_itself", {})[name] = words[:200]
            in_force.evidence["bit"] = True
        return in_force is not None

    # -- packets

    async def _packets(
        self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str
    ) -> InForce:
        fault = params["fault"]
        pairs = affected_pairs(fault, nodes, params, self._cluster.population())
        if not pairs:
            return InForce(nodes=())
        rules = self._rules(fault, pairs, params)
        sent_ns = time.monotonic_ns()
        answers = await self._apply(token, rules)
        done_ns = [int(answer["in_force_ns"]) for answer in answers.values()]
        first = next((pair for pair in pairs if set(pair) <= set(self._cluster.nodes)), None)
        return InForce(
            nodes=nodes,
            token={"at": list(rules), "probe": first},
            evidence={
                "hosts": sorted(rules),
                "in_force_ms": round((max(done_ns) - sent_ns) / 1e6, 2),
                "skew_ms": round((max(done_ns) - min(done_ns)) / 1e6, 2),
            },
        )

    def _rules(
        self, fault: str, pairs: Iterable[tuple[str, str]], params: Mapping[str, Any]
    ) -> Rules:
        """Returns per node the rules that catch the packets of ordered pairs of hosts."""
        kind = fault if fault in ("reject", "loss", "delay") else "drop"
        details = {key: params[key] for key in ("percent", "ms", "jitter_ms") if key in params}
        by_place: dict[tuple[str, str], list[list[str]]] = {}
        for source, target in pairs:
            place = self._place(source, target, params.get("at", "receiver"))
            if place is not None:
                pair = [self._address(source), self._address(target)]
                by_place.setdefault(place, []).append(pair)
        rules: Rules = {}
        for (name, hook), addresses in by_place.items():
            rule = {"kind": kind, "hook": hook, "pairs": addresses, **details}
            rules.setdefault(name, []).append(rule)
        return rules

    def _place(self, source: str, target: str, at: str) -> tuple[str, str] | None:
        """Returns at which node, and where in its kernel, the packets of a pair can be caught."""
        nodes = self._cluster.nodes
        clients = self._cluster.placement.packets_at_clients
        if at == "sender" and source in nodes:
            return source, "output"
        if target in nodes:
            return target, "input"
        if clients:
            return clients, "input"
        # Nobody sees packets arrive at clients here, so they are caught where they leave.
        return (source, "output") if source in nodes else None

    async def _apply(self, token: str, rules: Rules) -> dict[str, Any]:
        answers: dict[str, Any] = await self._at(
            list(rules),
            "net_apply",
            lambda names: {"token": token, "rules": {name: rules[name] for name in names}},
        )
        return answers

    async def _heal_packets(self, in_force: InForce, token: str) -> None:
        places = in_force.token["at"]
        answers = await self._at(
            places, "net_remove", lambda names: {"token": token, "nodes": names}
        )
        self._count_packets(in_force, answers)
        in_force.token["is_removed"] = True

    async def _effect_packets(self, in_force: InForce, token: str) -> None:
        if in_force.token.get("is_removed"):
            return
        places = in_force.token["at"]
        answers = await self._at(
            places, "net_evidence", lambda names: {"token": token, "nodes": names}
        )
        self._count_packets(in_force, answers)
        pair = in_force.token.get("probe")
        # The counters come first: the probe's own packets prove nothing about the system's.
        if pair is not None and "probe" not in in_force.evidence:
            in_force.evidence["probe"] = await self._probe(*pair)

    def _count_packets(self, in_force: InForce, answers: Mapping[str, Any]) -> None:
        if "packets" in in_force.evidence and "probe" in in_force.evidence:
            return  # what came after the probe is partly the probe's
        packets = {name: int(answer.get("packets", 0)) for name, answer in answers.items()}
        in_force.evidence["packets"] = sum(packets.values())
        in_force.evidence["packets_at"] = packets
        in_force.evidence["bit"] = sum(packets.values()) > 0

    async def _probe(self, source: str, target: str) -> dict[str, Any]:
        node = self._node(target)
        answer = await self._node(source).agent.ask(
            "probe",
            node=source,
            address=node.address,
            port=node.port,
            timeout_ms=PROBE_LIMIT_MS,
        )
        return {"from": source, "to": target, **answer}

    async def _bandwidth(
        self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str
    ) -> InForce:
        nodes = tuple(
            name
            for name in nodes
            if not any("bandwidth" in other.token for other in self._of(name))
        )
        rules = {
            name: [
                {
                    "kind": "bandwidth",
                    "pairs": [[self._address(name), "*"]],
                    "rate_kib_s": params["rate_kib_s"],
                }
            ]
            for name in nodes
        }
        await self._apply(token, rules)
        return InForce(nodes=nodes, token={"at": list(nodes), "bandwidth": True})

    async def _heal_bandwidth(self, in_force: InForce, token: str) -> None:
        await self._effect_bandwidth(in_force, token)
        await self._at(
            list(in_force.nodes), "net_remove", lambda names: {"token": token, "nodes": names}
        )
        in_force.token["is_removed"] = True

    async def _effect_bandwidth(self, in_force: InForce, token: str) -> None:
        if in_force.token.get("is_removed"):
            return
        answers = await self._at(
            list(in_force.nodes), "net_evidence", lambda names: {"token": token, "nodes": names}
        )
        overlimits = {name: int(answer.get("overlimits", 0)) for name, answer in answers.items()}
        in_force.evidence["overlimits"] = overlimits
        in_force.evidence["bit"] = any(overlimits.values())

    async def _reset_connections(
        self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str
    ) -> InForce:
        answers = await self._at(list(nodes), "reset_connections", lambda names: {"nodes": names})
        before = {name: int(answer["before"]) for name, answer in answers.items()}
        return InForce(
            nodes=nodes,
            evidence={"connections_before": before, "bit": any(before.values())},
        )

    # -- processes

    async def _pause(
        self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str
    ) -> InForce:
        alive = self._alive(nodes)
        states = {name: await self._ask(name, "status") for name in alive}
        running = tuple(name for name in alive if states[name]["state"] != "T")
        answers = await self._each(running, "pause")
        hit = tuple(name for name in running if answers[name]["stopped"])
        return InForce(
            nodes=hit,
            token={"pids": {name: answers[name]["pid"] for name in hit}},
            evidence={
                "paused": list(hit),
                "cpu_ticks": {name: answers[name]["cpu_ticks"] for name in hit},
            },
        )

    async def _heal_pause(self, in_force: InForce, token: str) -> None:
        for name, pid in in_force.token["pids"].items():
            await self._ask(name, "resume", pid=pid)

    async def _effect_pause(self, in_force: InForce, token: str) -> None:
        for name in in_force.nodes:
            status = await self._ask(name, "status")
            if status["state"] == "T" and status["pid"] == in_force.token["pids"][name]:
                # Stopped by the signal, and not one clock tick of work since then.
                stood = status["cpu_ticks"] == in_force.evidence["cpu_ticks"][name]
                in_force.evidence.setdefault("stood_still", {})[name] = stood
        in_force.evidence["bit"] = any(in_force.evidence.get("stood_still", {}).values())

    async def _stop(self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str) -> InForce:
        limit_s = int(params.get("grace_ms", STOP_GRACE_MS)) / 1000
        alive = self._alive(nodes)
        answers = await self._end(alive, "stop", limit_s)
        codes = {name: await self._cluster.placement.exit_code(self._node(name)) for name in alive}
        return InForce(
            nodes=alive,
            evidence={
                "ended": answers,
                "exit_codes": codes,
                "bit": bool(alive) and all(answer["in_time"] for answer in answers.values()),
            },
        )

    async def _kill(self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str) -> InForce:
        alive = self._alive(nodes)
        answers = await self._end(alive, "kill")
        return InForce(nodes=alive, evidence={"killed": answers, "bit": bool(alive)})

    async def _restart(
        self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str
    ) -> InForce:
        stopped = await self._stop(nodes, params, token)
        await asyncio.gather(*(self._cluster.start_node(name) for name in stopped.nodes))
        starts = {name: self._node(name).starts for name in stopped.nodes}
        stopped.evidence["starts"] = starts
        return stopped

    async def _start(
        self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str
    ) -> InForce:
        down = tuple(name for name in nodes if not self._cluster.is_alive(name))
        await asyncio.gather(*(self._cluster.start_node(name) for name in down))
        pids = {name: self._node(name).pid for name in down}
        return InForce(nodes=down, evidence={"pids": pids, "bit": bool(down)})

    async def _oom(self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str) -> InForce:
        alive = self._alive(nodes)
        for name in alive:
            self._cluster.expect_end(name)
        answers = await self._each(alive, "oom")
        for name in alive:
            self._cluster.process_is_gone(name)
        return InForce(nodes=alive, evidence={"oom": answers, "bit": bool(alive)})

    async def _slow_cpu(
        self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str
    ) -> InForce:
        free = [
            name
            for name in self._alive(nodes)
            if not any("slow_cpu" in other.token for other in self._of(name))
        ]
        answers = await self._each(free, "slow_cpu", percent=params["percent"])
        return InForce(nodes=tuple(free), token={"slow_cpu": True}, evidence={"mechanism": answers})

    async def _heal_slow_cpu(self, in_force: InForce, token: str) -> None:
        self._throttled(in_force, await self._each(in_force.nodes, "cpu_restore"))
        in_force.token["is_removed"] = True

    async def _effect_slow_cpu(self, in_force: InForce, token: str) -> None:
        if not in_force.token.get("is_removed"):
            self._throttled(in_force, await self._each(in_force.nodes, "cpu_evidence"))

    def _throttled(self, in_force: InForce, answers: Mapping[str, Any]) -> None:
        counts = {name: int(answer["throttled"]) for name, answer in answers.items()}
        in_force.evidence["throttled"] = counts
        in_force.evidence["bit"] = any(counts.values())

    # -- power

    async def _power(
        self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str
    ) -> InForce:
        alive = self._alive(nodes)
        for name in alive:
            self._cluster.expect_end(name)
        plans = {name: self._plan(name, params, token) for name in alive}
        answers = await self._at(
            list(alive),
            "power_cut",
            lambda names: {
                "nodes": names,
                "token": token,
                "plans": {name: plans[name] for name in names},
            },
            whole=True,
        )
        evidence: dict[str, Any] = {"mode": params.get("mode", "lose_all"), "bit": bool(alive)}
        for answer in answers:
            evidence.update(answer["nodes"])
            evidence.setdefault("timings_ms", []).append(answer["timings_ms"])
        for name in alive:
            self._node(name).silent = token
            self._cluster.process_is_gone(name)
        return InForce(nodes=alive, evidence=evidence)

    def _plan(self, name: str, params: Mapping[str, Any], token: str) -> dict[str, Any]:
        keep = params.get("keep_records")
        if isinstance(keep, Mapping):
            keep = keep.get(name)
        return {
            "mode": params.get("mode", "lose_all"),
            "seed": zlib.crc32(f"{token}/{name}".encode()),
            "keep_records": keep,
            "torn_bytes": int(params.get("torn_bytes", 0)),
        }

    # -- clocks

    async def _clock(
        self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str
    ) -> InForce:
        free = tuple(name for name in nodes if name not in self._skewed)
        for name in free:
            self._skewed[name] = token
        fault = params["fault"]
        if fault == "clock_strobe":
            period_ms = params["period_ms"]
            await self._each(free, "strobe", offset_ns=int(params["ms"] * 1e6), period_ms=period_ms)
        elif fault == "clock_drift":
            await self._each(free, "skew", rate_ppb=int(params["ppm"]) * 1000)
        else:
            await self._each(free, "skew", offset_ns=int(params["ms"] * 1e6))
        token_data = {
            "since_ns": time.monotonic_ns(),
            "fault": fault,
            "ms": params.get("ms", 0),
            "ppm": params.get("ppm", 0),
        }
        return InForce(nodes=free, token=token_data)

    async def _heal_clock(self, in_force: InForce, token: str) -> None:
        in_force.token["is_removed"] = True
        for name in in_force.nodes:
            self._skewed.pop(name, None)
        if in_force.token["fault"] == "clock_strobe":
            answers = await self._each(in_force.nodes, "strobe_end")
            in_force.evidence["set_back"] = {
                name: answer["backward_jumps"] for name, answer in answers.items()
            }
        else:
            await self._each(in_force.nodes, "skew")

    async def _effect_clock(self, in_force: InForce, token: str) -> None:
        if in_force.token.get("is_removed"):
            return
        shown = {name: self._shown(name, in_force) for name in in_force.nodes}
        in_force.evidence["shown_by_the_node"] = {name: text for name, (text, _) in shown.items()}
        in_force.evidence["bit"] = any(bit for _, bit in shown.values())

    def _shown(self, name: str, in_force: InForce) -> tuple[str, bool]:
        """Returns what a node's own readings show of a skew, and whether that is enough."""
        data = in_force.token
        readings = [r for r in self._cluster.clocks[name] if r[0] > data["since_ns"]]
        if len(readings) < 2:
            return "no reading", False
        ahead = [wall - self._cluster.true_wall_ms(name, at) for at, wall, _ in readings]
        if data["fault"] == "clock_step":
            return f"{ahead[-1]:.0f} ms", ahead[-1] / data["ms"] >= STEP_SEEN
        if data["fault"] == "clock_strobe":
            back = sum(b[1] < a[1] for a, b in itertools.pairwise(readings))
            return f"{back} times back", back > 0
        ppm = _rate_ppm([(at, monotonic) for at, _, monotonic in readings])
        return f"{ppm:.0f} ppm", abs(ppm - data["ppm"]) <= abs(data["ppm"]) * STEP_SEEN

    # -- disks

    async def _wipe(self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str) -> InForce:
        alive = self._alive(nodes)
        await self._end(alive, "kill")
        answers = await self._each(alive, "wipe")
        gone = [int(answer["bytes_before"]) > 0 for answer in answers.values()]
        return InForce(nodes=alive, evidence={"wiped": answers, "bit": any(gone)})

    async def _bit_flip(
        self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str
    ) -> InForce:
        alive = self._alive(nodes)
        await self._end(alive, "kill")
        answers = {
            name: await self._ask(name, "flip_bit", seed=zlib.crc32(f"{token}/{name}".encode()))
            for name in alive
        }
        flipped = [answer.get("bit") is not None for answer in answers.values()]
        return InForce(nodes=alive, evidence={"flipped": answers, "bit": any(flipped)})

    async def _disk_full(
        self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str
    ) -> InForce:
        free = self._excused_by(nodes, "disk_full", token)
        answers = await self._each(free, "fill", free_bytes=int(params.get("free_bytes", 0)))
        return InForce(nodes=free, evidence={"filled": answers})

    async def _heal_disk_full(self, in_force: InForce, token: str) -> None:
        await self._each(in_force.nodes, "unfill")
        in_force.token["is_removed"] = True

    async def _effect_disk_full(self, in_force: InForce, token: str) -> None:
        if in_force.token.get("is_removed"):
            return
        probes = await self._each(in_force.nodes, "probe_write")
        in_force.evidence["probe"] = {name: probe["error"] for name, probe in probes.items()}
        full = any(probe["errno"] == 28 for probe in probes.values())
        in_force.evidence["bit"] = full or "ended_by_itself" in in_force.evidence

    async def _io_error(
        self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str
    ) -> InForce:
        free = self._excused_by(self._alive(nodes), "io_error", token)
        if params.get("op", "fsync") == "all":
            await self._each(free, "disk_dies")
            return InForce(nodes=free, token={"op": "all"})
        return await self._trace(free, {"op": "fsync"}, "fsync-error", params)

    async def _slow_disk(
        self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str
    ) -> InForce:
        return await self._trace(self._alive(nodes), {"op": "slow"}, "fsync-delay", params)

    async def _trace(
        self, nodes: tuple[str, ...], token: dict[str, Any], inject: str, params: Mapping[str, Any]
    ) -> InForce:
        free = tuple(
            name
            for name in nodes
            if not any(other.token.get("is_tracing") for other in self._of(name))
        )
        await self._each(
            free,
            "trace",
            inject=inject,
            every=int(params.get("every", 1)),
            delay_ms=params.get("ms", 0),
        )
        return InForce(nodes=free, token={**token, "is_tracing": True})

    async def _heal_io(self, in_force: InForce, token: str) -> None:
        if in_force.token["op"] != "all":
            self._traced(in_force, await self._each(in_force.nodes, "trace_end"))
            in_force.token["is_removed"] = True
            return
        in_force.token["is_removed"] = True
        for name in in_force.nodes:
            await self._cluster.end_process(name, "kill")
            await self._ask(name, "disk_revives")
            await self._cluster.start_node(name)

    async def _effect_io(self, in_force: InForce, token: str) -> None:
        if in_force.token.get("is_removed"):
            return
        if in_force.token["op"] != "all":
            self._traced(in_force, await self._each(in_force.nodes, "trace_evidence"))
            return
        probes = await self._each(in_force.nodes, "probe_write")
        in_force.evidence["probe"] = {name: probe["error"] for name, probe in probes.items()}
        broken = any(probe["errno"] == 5 for probe in probes.values())
        in_force.evidence["bit"] = broken or "ended_by_itself" in in_force.evidence

    def _traced(self, in_force: InForce, answers: Mapping[str, Any]) -> None:
        calls = {name: int(answer["calls"]) for name, answer in answers.items()}
        in_force.evidence["calls_hit"] = calls
        in_force.evidence["bit"] = any(calls.values()) or "ended_by_itself" in in_force.evidence

    async def _stuck_disk(
        self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str
    ) -> InForce:
        free = self._excused_by(nodes, "stuck_disk", token)
        await self._each(free, "freeze_disk", watchdog_s=FREEZE_WATCHDOG_S)
        return InForce(nodes=free)

    async def _heal_stuck_disk(self, in_force: InForce, token: str) -> None:
        answers = await self._each(in_force.nodes, "thaw_disk")
        blocked = {name: answer.get("blocked_ms", 0) for name, answer in answers.items()}
        in_force.evidence["blocked_ms"] = blocked
        in_force.evidence["bit"] = any(ms > STUCK_BIT_MS for ms in blocked.values())

    async def _read_only(
        self, nodes: tuple[str, ...], params: Mapping[str, Any], token: str
    ) -> InForce:
        free = self._excused_by(self._alive(nodes), "read_only", token)
        await self._end(free, "kill")
        answers = await self._each(free, "remount", read_only=True)
        refused = [answer["probe"]["errno"] == 30 for answer in answers.values()]
        in_force = InForce(nodes=free, evidence={"probe": answers, "bit": any(refused)})
        self._in_force[token] = in_force  # the node ends while it is being started
        await asyncio.gather(*(self._cluster.start_node(name) for name in free))
        return in_force

    async def _heal_read_only(self, in_force: InForce, token: str) -> None:
        for name in in_force.nodes:
            await self._cluster.end_process(name, "kill")
            await self._ask(name, "remount", read_only=False)

    # -- helpers

    async def _start_dead(self, fault: str, in_force: InForce) -> None:
        """Starts the nodes that a fault took down, or that ended because of it."""
        ended = in_force.evidence.get("ended_by_itself", {})
        names = in_force.nodes if fault in OUTAGES else [n for n in in_force.nodes if n in ended]
        await asyncio.gather(
            *(self._cluster.start_node(name) for name in names if not self._cluster.is_alive(name))
        )

    def _of(self, name: str) -> list[InForce]:
        """Returns what is in force on a node."""
        return [entry for entry in self._in_force.values() if name in entry.nodes and entry.token]

    def _excused_by(self, nodes: Iterable[str], fault: str, token: str) -> tuple[str, ...]:
        """Marks nodes as allowed to die of a fault; those that have it already are not hit again."""
        free = []
        for name in nodes:
            node = self._node(name)
            if fault not in node.excuses.values():
                node.excuses[token] = fault
                free.append(name)
        return tuple(free)

    def _alive(self, nodes: Iterable[str]) -> tuple[str, ...]:
        return tuple(name for name in nodes if self._cluster.is_alive(name))

    async def _end(self, nodes: Iterable[str], how: str, limit_s: float = 15.0) -> dict[str, Any]:
        names = list(nodes)
        answers = await asyncio.gather(
            *(self._cluster.end_process(name, how, limit_s) for name in names)
        )
        return dict(zip(names, answers, strict=True))

    async def _ask(self, name: str, command: str, **arguments: Any) -> Any:
        return await self._node(name).agent.ask(command, node=name, **arguments)

    async def _each(self, nodes: Iterable[str], command: str, **arguments: Any) -> dict[str, Any]:
        names = list(nodes)
        answers = await asyncio.gather(*(self._ask(name, command, **arguments) for name in names))
        return dict(zip(names, answers, strict=True))

    async def _at(
        self,
        nodes: list[str],
        command: str,
        arguments: Callable[[list[str]], dict[str, Any]],
        *,
        whole: bool = False,
    ) -> Any:
        """Sends one command to every agent that has some of the nodes, at one instant."""
        by_agent: dict[int, list[str]] = {}
        for name in nodes:
            by_agent.setdefault(id(self._agent(name)), []).append(name)
        futures = [
            self._agent(names[0]).ask(command, **arguments(names)) for names in by_agent.values()
        ]
        answers = await asyncio.gather(*futures)
        if whole:
            return answers
        return {name: value for answer in answers for name, value in answer.items()}

    def _agent(self, name: str) -> Any:
        node = self._cluster.nodes.get(name)
        if node is not None:
            return node.agent
        return next(iter(self._cluster.nodes.values())).agent  # the one that sees clients' packets

    def _address(self, name: str) -> str:
        node = self._cluster.nodes.get(name)
        if node is not None:
            return node.address
        addresses = self._cluster.placement.client_addresses
        return addresses.get(name, addresses[HARNESS_HOST])

    def _node(self, name: str) -> "HostNode":
        return self._cluster.nodes[name]


def _rate_ppm(readings: list[tuple[int, int]]) -> float:
    """Returns how much too fast a clock ran, by its longest stretch of readings without a restart in between."""
    stretches = [[readings[0]]]
    for before, after in itertools.pairwise(readings):
        rate = (after[1] - before[1]) / max(after[0] - before[0], 1)
        if not RATE_OF_ONE_PROCESS[0] < rate < RATE_OF_ONE_PROCESS[1]:
            stretches.append([])  # a new process begins its monotonic clock somewhere else
        stretches[-1].append(after)
    (at_0, shown_0), *_, (at_1, shown_1) = max(
        (stretch if len(stretch) > 1 else [(0, 0), (1, 1)] for stretch in stretches), key=len
    )
    return ((shown_1 - shown_0) / max(at_1 - at_0, 1) - 1) * 1e6


_FAMILY_OF = {
    **dict.fromkeys(("cut", "isolate", "partition", "reject", "loss", "delay"), "packets"),
    **dict.fromkeys(("clock_step", "clock_drift", "clock_strobe"), "clock"),
    **dict.fromkeys(("io_error", "slow_disk"), "io"),
}
"""Faults that are healed and proved alike."""
