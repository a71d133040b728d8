"""The last-replica-standing bug and its neighbours: variants V1 to V8 with their expected outcomes.

Acknowledged records are on three brokers. Two of them lose contact, so that the third is the only member of the
ISR. It loses its un-fsynced tail in a power cut, returns and leads, and the others truncate good copies to match
it. With eligible leader replicas (KIP-966) it does not lead. Each variant changes one thing; `docs/variants.md`,
which is generated from this module, explains them.

Brokers are 1, 2, 3 ("b1" ...), the topic has one partition led by broker 1, records r0 to r9 are acknowledged by
all replicas first, nothing is fsynced. A power cut keeps exactly the first five records (`keep_records`).

Outcome words: "ok"; "loss" (acks=all records gone, no flagged election); "loss(f)" (gone after a flagged
election); "weak" (only acks=1 records gone); "visible" (a record was read and later gone); joined by "+".
"""

from harness.scenarios.common import (
    ALONE_BY_CUTS,
    LOSES_ITS_TAIL_AND_RETURNS,
    RETURN_2_1_3,
    TEN_RECORDS,
    alone_by_isolation,
    heal,
    inject,
    isolate,
    power,
)
from harness.scenarios.steps import Append, Join, Poll, Scenario, Step, Wait
from nemesis.fault import Fault

OFF_NO_GATE = "elr-off-no-gate"
OFF = "elr-off"
ON = "elr-on"


def _outcomes(no_gate: str, off: str, on: str) -> dict[str, str]:
    return {OFF_NO_GATE: no_gate, OFF: off, ON: on}


def _v1(variant: str, title: str, min_isr: int, more: int, expected: dict[str, str]) -> Scenario:
    steps: list[Step] = [*TEN_RECORDS, isolate(2), Wait(fenced=(2,), isr=(1,))]
    if more:
        steps.append(Append(count=more))
    steps += [
        power(1, 5),
        Wait(fenced=(1,), leader=-1),
        inject("start-b1", "start", "b1"),
        Wait(unfenced=(1,)),
        heal("isolate-b2"),
        Wait(unfenced=(2,), has_leader=True),
    ]
    return _scenario(variant, title, 2, min_isr, steps, expected)


def _scenario(
    variant: str,
    title: str,
    replication_factor: int,
    min_isr: int,
    steps: list[Step],
    expected: dict[str, str],
) -> Scenario:
    return Scenario(
        name=f"last-replica-standing:{variant}",
        title=title,
        replication_factor=replication_factor,
        min_insync_replicas=min_isr,
        steps=tuple(steps),
        expected=expected,
    )


def _v3(variant: str, title: str, cut: Fault, *, expected: dict[str, str]) -> Scenario:
    steps = [*TEN_RECORDS, *alone_by_isolation(), Append(count=1, until_ok=False)]
    steps += [cut, Wait(fenced=(1,), leader=-1), *RETURN_2_1_3, Append(count=5)]
    return _scenario(variant, title, 3, 2, steps, expected)


def _v3b() -> Scenario:
    steps: list[Step] = [
        *TEN_RECORDS,
        *ALONE_BY_CUTS,
        *LOSES_ITS_TAIL_AND_RETURNS,
    ]
    title = "the leader loses the links to its followers, shrinks the ISR to itself, loses its tail"
    return _scenario("V3b", title, 3, 2, steps, _outcomes("loss", "loss", "ok"))


def _v3_away(variant: str, title: str, verb: str) -> Scenario:
    """V3c and V3d: followers 2 and 3 are stopped cleanly, or paused, instead of isolated."""
    steps: list[Step] = [
        *TEN_RECORDS,
        inject(f"{verb}-b2", verb, "b2"),
        Wait(fenced=(2,), isr=(1, 3)),
        inject(f"{verb}-b3", verb, "b3"),
        Wait(fenced=(3,), isr=(1,)),
        power(1, 5),
        Wait(fenced=(1,), leader=-1),
        heal(f"{verb}-b2"),
        Wait(unfenced=(2,)),
        inject("start-b1", "start", "b1"),
        Wait(unfenced=(1,)),
        heal(f"{verb}-b3"),
        Wait(unfenced=(3,)),
        Wait(has_leader=True),
        Append(count=5),
    ]
    return _scenario(variant, title, 3, 2, steps, _outcomes("loss", "loss", "ok"))


def _v4(variant: str, title: str, end: Fault, expected: dict[str, str]) -> Scenario:
    steps: list[Step] = [
        *TEN_RECORDS,
        *alone_by_isolation(),
        Append(count=5, acks=1),
        Poll(count=3),
        end,
        Wait(fenced=(1,), leader=-1),
    ]
    if end.fault == "stop":
        # Broker 3 first: with ELR on it leads and the acks=1 tail of the cleanly stopped 1 is truncated.
        steps += [
            heal("isolate-b3"),
            Wait(unfenced=(3,)),
            heal("stop-b1"),
            Wait(unfenced=(1,)),
            heal("isolate-b2"),
            Wait(unfenced=(2,)),
            Wait(has_leader=True),
        ]
    else:
        steps += list(RETURN_2_1_3)
    return _scenario(variant, title, 3, 2, steps, expected)


def _v5(variant: str, title: str, end: Fault, expected: dict[str, str]) -> Scenario:
    steps: list[Step] = [
        *TEN_RECORDS,
        inject("cut-12", "cut", "b1", "b2", planes=("inter-broker",)),
        inject("cut-13", "cut", "b1", "b3", planes=("inter-broker",)),
        Append(count=1, until_ok=False, in_background=True),
        Wait(isr=(1,)),
        Poll(count=3),
        Join(),
        end,
        Wait(fenced=(1,)),
        heal("cut-12", "cut-13"),
        inject("start-b1", "start", "b1"),
        Wait(unfenced=(1, 2, 3), has_leader=True),
    ]
    return _scenario(variant, title, 3, 2, steps, expected)


def _v6() -> Scenario:
    steps = [*TEN_RECORDS, *alone_by_isolation(), power(1, 5)]
    steps += [Wait(fenced=(1,), leader=-1), *RETURN_2_1_3]
    title = "min ISR 1 promises nothing: a negative control"
    return _scenario("V6", title, 3, 1, steps, _outcomes("loss", "loss", "loss(f)"))


def _v7() -> Scenario:
    steps: list[Step] = [
        *TEN_RECORDS,
        Fault(
            id="power-all",
            fault="power",
            targets=("b1", "b2", "b3"),
            params={"keep_records": {"b1": 5, "b2": 8, "b3": 6}},
        ),
        Wait(fenced=(1, 2, 3), leader=-1),
        heal("power-all"),
        Wait(unfenced=(1, 2, 3), has_leader=True),
    ]
    title = "all three brokers lose power at one instant"
    return _scenario("V7", title, 3, 2, steps, _outcomes("loss", "loss", "loss(f)"))


_LOSS_OFF = _outcomes("loss", "loss", "ok")

VARIANTS: dict[str, Scenario] = {
    "V1": _v1(
        "V1",
        "two replicas, min ISR 1, the last replica loses its tail",
        1,
        5,
        _outcomes("loss", "loss", "loss(f)"),
    ),
    "V1b": _v1(
        "V1b",
        "as V1, nothing written to the last replica",
        1,
        0,
        _outcomes("loss", "loss", "loss(f)"),
    ),
    "V2": _v1("V2", "two replicas, min ISR 2", 2, 0, _LOSS_OFF),
    "V3a": _v3(
        "V3a",
        "followers isolated and fenced, the last replica loses its tail",
        power(1, 5),
        expected=_LOSS_OFF,
    ),
    "V3b": _v3b(),
    "V3c": _v3_away("V3c", "followers stopped cleanly", "stop"),
    "V3d": _v3_away("V3d", "followers paused", "pause"),
    "V3e": _v3("V3e", "the last replica loses everything", power(1, 0), expected=_LOSS_OFF),
    "V3f": _v3(
        "V3f",
        "the last replica's tail is torn in the middle of a record",
        power(1, 5, torn_bytes=20),
        expected=_LOSS_OFF,
    ),
    "V4": _v4(
        "V4",
        "acks=1 records on the last replica",
        power(1, 12),
        _outcomes("weak+visible", "weak", "weak"),
    ),
    "V4c": _v4(
        "V4c",
        "acks=1 records on the last replica, which stops cleanly",
        inject("stop-b1", "stop", "b1"),
        _outcomes("ok", "ok", "weak"),
    ),
    "V5": _v5(
        "V5",
        "an acks=all request in flight when the ISR shrinks",
        power(1, 10),
        _outcomes("visible", "ok", "ok"),
    ),
    "V5b": _v5(
        "V5b",
        "as V5, the leader's process is only killed",
        inject("kill-b1", "kill", "b1"),
        _outcomes("ok", "ok", "ok"),
    ),
    "V6": _v6(),
    "V7": _v7(),
    "V8": _v3(
        "V8",
        "only the process is killed: the page cache survives",
        inject("kill-b1", "kill", "b1"),
        expected=_outcomes("ok", "ok", "ok"),
    ),
}
"""Every variant by its name."""
