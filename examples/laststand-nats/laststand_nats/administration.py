"""Administrative actions: another server in the place of one (`reassign`), another leader (`elect_leader`).

JetStream is asked to remove a server from a stream; which one follows, its metadata leader decides. So of the
replicas that an action names, only the one that it leaves out counts.
"""

import asyncio
import json
from collections.abc import Mapping

from harness.contracts.administration import Action, ActionOutcome, ElectLeader, Reassign
from harness.contracts.host import ClientHost
from laststand_nats.client import Failed, NatsClient

ACTIONS = (Reassign.name, ElectLeader.name)
REQUEST_MS = 3000
ATTEMPTS = 5
RETRY_S = 1.0


def refusal(action: Action) -> str:
    """Returns why an action cannot be requested; "" if it can."""
    if isinstance(action, ElectLeader) and action.unclean:
        return "JetStream has no unclean elections"
    return "" if action.name in ACTIONS else f"JetStream has nothing like {action.name}"


async def administer(host: ClientHost, brokers: Mapping[int, str], action: Action) -> ActionOutcome:
    """Requests an action; again if it was certainly not executed, because there may be no leader."""
    client = NatsClient(
        host,
        tuple(brokers.values()),
        request_timeout_ms=REQUEST_MS,
        connect_timeout_ms=REQUEST_MS,
    )
    try:
        for _ in range(ATTEMPTS):
            outcome = await request(client, action, brokers)
            if outcome.is_accepted or not outcome.is_known:
                break
            await asyncio.sleep(RETRY_S)
        return outcome
    finally:
        await client.disconnect()


async def request(client: NatsClient, action: Action, brokers: Mapping[int, str]) -> ActionOutcome:
    """Requests an action; a request without a response may have been executed."""
    if refusal(action) or not isinstance(action, Reassign | ElectLeader):
        return _refused(None, refusal(action))
    ids = {address: number for number, address in brokers.items()}
    stream, is_sent = f"{action.topic}-{action.partition}", False
    what = "LEADER.STEPDOWN"
    fields: dict[str, str] = {}
    try:
        if isinstance(action, Reassign):
            cluster = (await client.info(stream)).get("cluster", {})
            others = [each["name"] for each in cluster.get("replicas") or ()]
            # A server that has just started may not know the names of all others.
            known = {f"b{number}": number for number in brokers}
            members = [name for name in (cluster.get("leader"), *others) if name in known]
            leaving = [name for name in members if known[name] not in action.replicas]
            if len(leaving) != 1:
                return _refused(None, f"{leaving} would leave, not one server")
            what, fields = "PEER.REMOVE", {"peer": leaving[0]}
        is_sent = True
        await client.ask(f"$JS.API.STREAM.{what}.{stream}", json.dumps(fields).encode())
    except Failed as failed:
        is_known = not is_sent or bool(failed.code) or not failed.may_have_happened
        return _refused(ids.get(client.server), failed.word, is_known=is_known)
    return ActionOutcome(broker=ids.get(client.server), is_accepted=True, evidence=fields)


def _refused(broker: int | None, reason: str, *, is_known: bool = True) -> ActionOutcome:
    return ActionOutcome(
        broker=broker, is_accepted=False, is_known=is_known, evidence={"error": reason}
    )
