"""The process in a network namespace that changes what happens to packets there.

    python -m nemesis.agent.packets.network --pid PID          in the namespace of a process
    python -m nemesis.agent.packets.network --descriptor N     in the namespace of this open file
    python -m nemesis.agent.packets.network                    in its current namespace
    python -m nemesis.agent.packets.network --scratch          in a new one, which ends with it

It reads and writes lines of JSON, as the agent does. When its input ends, it removes its packet rules.
"""

import argparse
import contextlib
import ctypes
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Any

from nemesis.agent.packets import netem, traffic
from nemesis.agent.packets.netem import KernelLacksNetemError, NetemDelay, NoNetemError
from nemesis.agent.packets.nfqueue import DelayQueueWorker, add_queue_target
from nemesis.agent.packets.nft import Nft, list_table, open_nft, our_tables
from nemesis.agent.packets.nft_rules import (
    ANY,
    NETEM,
    NFQUEUE,
    Counters,
    DelayQueue,
    NetworkError,
    Rule,
    counters,
    delay_chain,
    is_for_table,
    parse_rules,
    table_name,
    table_text,
)
from nemesis.agent.packets.sockets import connect_probe, reset_connections
from nemesis.agent.packets.trial import Level, try_out

_CLONE_NEWNET = 0x40000000

Response = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class _Token:
    """The packet rules of one token, in force. Mutable."""

    rules: tuple[Rule, ...]
    table: str = ""
    netems: dict[int, NetemDelay] = field(default_factory=dict)
    workers: dict[int, DelayQueueWorker] = field(default_factory=dict)
    no_netem: dict[int, str] = field(default_factory=dict)
    bandwidth: traffic.Bandwidth | None = None
    in_force_ns: int = 0
    is_adopted: bool = False


class PacketRules:
    """The packet rules of this process in its network namespace. Mutable; one thread at a time.

    Args:
        owner: Distinguishes this process's tables from others in the same namespace.
        exempt: A remote address and a local port whose packets always pass.
    """

    def __init__(self, owner: str, exempt: tuple[str, int] | None = None) -> None:
        self._owner = owner
        self._exempt = exempt
        self._tokens: dict[str, _Token] = {}
        self._last: dict[str, Response] = {}
        self._emptied: list[str] = []
        self._nft_or_none: Nft | None = None
        self._knows_queues: bool | None = None
        self._kernel_lacks_netem = ""
        self._rests: list[threading.Thread] = []

    @property
    def nft(self) -> Nft:
        """The access to nftables."""
        if self._nft_or_none is None:
            self._nft_or_none = open_nft()
        return self._nft_or_none

    @property
    def knows_queues(self) -> bool:
        """Whether nftables of this kernel supports queueing packets to a process."""
        if self._knows_queues is None:
            name = table_name("try_queue", self._owner)
            try:
                self.nft.run(
                    f"add table inet {name}\n"
                    f"table inet {name} {{ chain c {{ counter queue flags bypass to 1 ; }}\n}}\n"
                    f"delete table inet {name}"
                )
                self._knows_queues = True
            except NetworkError:
                self._knows_queues = False
        return self._knows_queues

    def apply(self, token: str, rules: list[Response]) -> Response:
        """Puts packet rules in force; idempotent.

        Raises:
            NetworkError: It failed; none of the packet rules is in force.
        """
        began_ns = time.monotonic_ns()
        parsed = parse_rules(rules)
        held = self._tokens.get(token)
        if held is not None and held.rules != parsed:
            raise NetworkError(f"{token!r} is in force with other packet rules; remove it first")
        if held is None:
            held = _Token(rules=parsed)
            try:
                self._put_in_force(token, held)
            except BaseException:
                self._take_back(held)
                raise
            held.in_force_ns = time.monotonic_ns()
            self._tokens[token] = held
            self._last.pop(token, None)
        took_ms = (time.monotonic_ns() - began_ns) / 1e6
        return {"in_force_ns": held.in_force_ns, "took_ms": round(took_ms, 3)}

    def adopt(self, tokens: dict[str, list[Response]]) -> None:
        """Takes over the packet rules of a process of the same owner that died.

        Tables, limits and netem are still in force, with their counters. Queues are not: packets pass a queue
        without a process at once. Such delays start again, and their evidence notes it.
        """
        for token, rules in tokens.items():
            held = _Token(rules=parse_rules(rules), is_adopted=True)
            table = table_name(token, self._owner)
            limits = tuple(rule for rule in held.rules if rule.kind == "bandwidth")
            self._delay_by_netem(token, held)
            if held.no_netem:
                self._put_in_force(token, held)
            elif limits:
                held.bandwidth = traffic.Bandwidth(limits, adopts=True)
            if table in our_tables(self.nft):
                held.table = table
            held.in_force_ns = time.monotonic_ns()
            self._tokens[token] = held
        # Delays that it was about to put in force, or had healed and was still draining.
        taken = {one.device for held in self._tokens.values() for one in held.netems.values()}
        self._rests.append(netem.remove(set(netem.device_names(self._owner)) - taken))

    def _put_in_force(self, token: str, held: _Token) -> None:
        self._check(held.rules)
        limits = tuple(rule for rule in held.rules if rule.kind == "bandwidth")
        if limits:
            held.bandwidth = traffic.Bandwidth(limits, adopts=held.is_adopted)
        if not held.is_adopted:
            self._delay_by_netem(token, held)
        queues = {}
        for index in held.no_netem:
            rule = held.rules[index]
            worker = held.workers[index] = DelayQueueWorker(rule.ms, rule.jitter_ms)
            queues[index] = DelayQueue(number=worker.number, is_native=self.knows_queues)
        if not any(is_for_table(index, rule, queues) for index, rule in enumerate(held.rules)):
            return
        table = table_name(token, self._owner)
        text = table_text(table, held.rules, queues, self._exempt)
        if table in self._emptied:
            self._emptied.remove(table)
        self.nft.run(text)
        held.table = table
        for index, queue in queues.items():
            if not queue.is_native:
                add_queue_target(table, delay_chain(index), queue.number)

    def _delay_by_netem(self, token: str, held: _Token) -> None:
        """Uses netem for a token's delays, or records why it does not."""
        for index, rule in enumerate(held.rules):
            if rule.kind != "delay":
                continue
            why = "" if rule.by == NETEM else self._kernel_lacks_netem
            if rule.by == NFQUEUE:
                why = "it was requested"
            why = why or netem.unsuitable(held.rules, index)
            if not why:
                try:
                    held.netems[index] = self._netem(token, held, index)
                    continue
                except KernelLacksNetemError as error:
                    why = self._kernel_lacks_netem = str(error)
                except NoNetemError as error:
                    why = str(error)
            if rule.by == NETEM:
                raise NetworkError(why)
            held.no_netem[index] = why

    def _netem(self, token: str, held: _Token, index: int) -> NetemDelay:
        if held.is_adopted:
            return NetemDelay.taken_over(self._owner, token, index)
        return NetemDelay(self._owner, token, index, held.rules[index], self._exempt)

    def _check(self, rules: tuple[Rule, ...]) -> None:
        if self._exempt is None:
            return
        for rule in rules:
            if (ANY, ANY) in rule.pairs and rule.kind != "bandwidth":
                raise NetworkError(
                    "'* to *' would affect every packet of a host that the harness reaches over the network; "
                    "name the node's address"
                )

    def evidence(self, token: str) -> Response:
        """Returns what a token's packet rules have caught: now, or when they were removed.

        Raises:
            NetworkError: The token was never in force here.
        """
        held = self._tokens.get(token)
        if held is not None:
            return _evidence(self._counters(held), held)
        if token in self._last:
            return self._last[token]
        raise NetworkError(f"nothing is known of {token!r} in this namespace")

    def _counters(self, held: _Token) -> Counters:
        return counters(list_table(self.nft, held.table)) if held.table else {}

    def remove(self, token: str) -> Response:
        """Removes a token's packet rules and returns the last evidence; idempotent."""
        held = self._tokens.get(token)
        if held is None:
            return self._last.get(token, {"packets": 0, "bytes": 0, "seen": 0})
        failure = ""
        found: Counters = {}
        try:
            found = self._counters(held)
        except NetworkError as error:
            failure = str(
                error
            )  # another program removed the table; the rest is removed all the same
        self._take_back(held)
        # Queues and limits keep their counters. Packets that waited in a queue have been released by now; packets
        # that wait in netem arrive when due.
        self._last[token] = _evidence(found, held)
        if failure:
            self._last[token]["failure"] = failure
        del self._tokens[token]
        return self._last[token]

    def _take_back(self, held: _Token) -> None:
        if held.table and held.table in our_tables(self.nft):
            # When a hook is removed, the kernel drops every packet that waits in any queue of the namespace. So
            # the nft rules are removed first, then waiting packets are released, and tables are removed only
            # when no packet waits for another token either.
            self.nft.run(f"flush table inet {held.table}")
            self._emptied.append(held.table)
        for worker in held.workers.values():
            worker.close()
        for held_netem in held.netems.values():
            held_netem.close()
            if held_netem.rest is not None:
                self._rests = [*filter(threading.Thread.is_alive, self._rests), held_netem.rest]
        if held.bandwidth is not None:
            held.bandwidth.close()
        if not any(other.workers for other in self._tokens.values() if other is not held):
            self._delete_emptied()

    def _delete_emptied(self) -> None:
        if self._emptied:
            there = set(our_tables(self.nft))
            gone = [name for name in self._emptied if name in there]
            if gone:
                self.nft.run("\n".join(f"delete table inet {name}" for name in gone))
            self._emptied = []

    def tokens(self) -> list[str]:
        """Returns the tokens in force, oldest first."""
        return list(self._tokens)

    def reset(self) -> list[str]:
        """Removes what any run left in this namespace, this run included; returns one line each."""
        removed = [f"rules of {token}" for token in self._tokens]
        for token in list(self._tokens):
            self.remove(token)
        self._delete_emptied()
        for name in our_tables(self.nft):
            self.nft.run(f"delete table inet {name}")
            removed.append(f"table {name}")
        self._end([])
        return removed + netem.remove_ours() + traffic.remove_ours()

    def close(self) -> None:
        """Removes all packet rules of this process."""
        for token in list(self._tokens):
            try:
                self.remove(token)
            except NetworkError as error:
                print(f"packet rules of {token} could not be removed: {error}", file=sys.stderr)
        self._delete_emptied()
        self._end(netem.device_names(self._owner))

    def _end(self, devices: list[str]) -> None:
        """Removes interfaces of delays; returns when they, and those of delays healed before, are gone."""
        rests, self._rests = [*self._rests, netem.remove(devices)], []
        for rest in rests:
            rest.join()


def _evidence(found: Counters, held: _Token) -> Response:
    workers, bandwidth = held.workers, held.bandwidth
    response: Response = {"packets": 0, "bytes": 0, "seen": 0}
    for index, (matched, acted) in found.items():
        response["seen"] += matched[0]
        response["bytes"] += acted[1]
        if index not in workers:
            response["packets"] += acted[0]
    if held.netems:
        response["netem"] = {str(index): netem.evidence() for index, netem in held.netems.items()}
        for taken in response["netem"].values():
            response["packets"] += taken["delayed"]
            response["bytes"] += taken["bytes"]
            response["seen"] += taken["delayed"]
    used = [name for name, there in ((NETEM, held.netems), (NFQUEUE, workers)) if there]
    if used:
        response["mechanism"] = ", ".join(used)
    if workers:
        response["no_netem"] = "; ".join(dict.fromkeys(held.no_netem.values()))
        queues = {str(index): worker.evidence() for index, worker in workers.items()}
        response["queues"] = queues
        response["packets"] += sum(int(queue["delayed"]) for queue in queues.values())
        response["is_interrupted"] = held.is_adopted
    if bandwidth is not None:
        sent = bandwidth.evidence()
        response["packets"] += sent["packets"]
        response["bytes"] += sent["bytes"]
        response |= {key: sent[key] for key in ("overlimits", "drops", "backlog")}
        response["sent_bytes"] = sent["bytes"]
    return response


class Server:
    """Serves requests until the input ends.

    Args:
        rules: The packet rules of the namespace.
        source, sink: Lines of JSON.
    """

    def __init__(self, rules: PacketRules, source: IO[bytes], sink: IO[bytes]) -> None:
        self._rules = rules
        self._source = source
        self._sink = sink
        self._lock = threading.Lock()
        self._commands: dict[str, Callable[..., Any]] = {
            "hello": self._hello,
            "adopt": rules.adopt,
            "apply": rules.apply,
            "evidence": rules.evidence,
            "remove": rules.remove,
            "tokens": rules.tokens,
            "reset": rules.reset,
            "reset_connections": reset_connections,
            "probe": connect_probe,
            "try_out": lambda is_scratch: try_out(rules, is_scratch),
        }

    def serve(self) -> None:
        """Serves until the input ends, then removes the packet rules."""
        try:
            for line in self._source:
                request = json.loads(line)
                if request["do"] == "probe":
                    # A probe waits; other requests should not.
                    threading.Thread(target=self._respond, args=(request,), daemon=True).start()
                else:
                    self._respond(request)
        finally:
            self._rules.close()

    def _hello(self) -> Response:
        return {"pid": os.getpid()}

    def _respond(self, request: Response) -> None:
        try:
            command = self._commands[request["do"]]
            response: Response = {"ok": command(**request.get("args", {}))}
        except NetworkError as error:
            response = {"error": str(error)}
        except Exception as error:
            response = {"error": f"{type(error).__name__}: {error}"}
        data = json.dumps({"id": request["id"], **response}, separators=(",", ":")).encode()
        with (
            self._lock,
            contextlib.suppress(OSError),
        ):  # the reader is gone, and the input ends as well
            self._sink.write(data + b"\n")
            self._sink.flush()


# -- namespaces


def enter_namespace(descriptor: int) -> None:
    """Moves this thread, and those it starts later, into a network namespace.

    Args:
        descriptor: The namespace's open file, which is closed.

    Raises:
        NetworkError: It cannot be entered.
    """
    try:
        _call("setns", descriptor, _CLONE_NEWNET)
    finally:
        os.close(descriptor)


def make_namespace() -> None:
    """Moves this thread, and those it starts later, into a new network namespace with a loopback interface.

    Raises:
        NetworkError: This process may not make one.
    """
    _call("unshare", _CLONE_NEWNET)
    traffic.set_up("lo")


def _call(name: str, *arguments: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise NetworkError(f"{name} of a network namespace failed: {reason}; it needs root")


def main() -> int:
    """Serves until standard input ends."""
    parser = argparse.ArgumentParser(prog="laststand-network")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--pid", type=int, help="enter the namespace of this process")
    where.add_argument("--descriptor", type=int, help="enter the namespace of this open file")
    where.add_argument("--scratch", action="store_true", help="make a new namespace")
    parser.add_argument("--owner", default="me", help="part of the names of tables")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        exempt = _move(options)
    except (NetworkError, OSError) as error:
        # Read by the process that started this one; there has been no request yet.
        print(json.dumps({"id": None, "error": str(error)}), flush=True)
        return 1
    rules = PacketRules(options.owner, exempt)
    Server(rules, sys.stdin.buffer, sys.stdout.buffer).serve()
    return 0


def _move(options: argparse.Namespace) -> tuple[str, int] | None:
    """Enters the namespace of the options; returns the address and port whose packets must always pass."""
    if options.pid is not None:
        enter_namespace(os.open(f"/proc/{options.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC))
    elif options.descriptor is not None:
        enter_namespace(options.descriptor)
    elif options.scratch:
        make_namespace()
    else:
        return way_to_harness(os.environ.get("SSH_CONNECTION", ""))
    return None


def way_to_harness(ssh_connection: str) -> tuple[str, int] | None:
    """Returns the harness's address and the port on which it reaches this host; None if not by SSH."""
    fields = ssh_connection.split()
    return (fields[0].partition("%")[0], int(fields[3])) if len(fields) == 4 else None


def capabilities(scratch: bool = True) -> dict[str, Level]:
    """Returns what this namespace supports, found out by trying it.

    Args:
        scratch: Try in a new network namespace, which is removed afterwards. Otherwise, or where that is not
            allowed, try in the agent's namespace; what would change its interfaces is reported as "no".

    Returns:
        "nft-drop", "nft-reject", "nft-loss", "nfqueue", "netem", "tbf", "sock-destroy" and "netns", each with its
        `level` ("yes", "weaker", "no"), `how` it is done, and `why` not, or why only weaker.
    """
    from nemesis.agent.packets.namespace import Namespace

    netns: Level = {"level": "yes", "how": "setns", "why": ""}
    if scratch:
        try:
            trial = Namespace(None, is_scratch=True)
        except NetworkError as error:
            netns = {"level": "no", "how": "", "why": str(error)}
            scratch = False
    if not scratch:
        trial = Namespace(None)
        if netns["level"] == "yes":
            netns = {"level": "no", "how": "", "why": "not tried"}
    try:
        return {**trial.try_out(), "netns": netns}
    finally:
        trial.close()


if __name__ == "__main__":
    sys.exit(main())
