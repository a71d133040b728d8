"""The last-replica-standing bug and its neighbours: variants V1 to V13 with their expected outcomes.

Acknowledged records are on three brokers. Two of them lose contact, so that the third is the only member of the
ISR. It loses its un-fsynced tail in a power cut, returns and leads, and the others truncate good copies to match
it. With eligible leader replicas (KIP-966) it does not lead. Each variant changes one thing; `docs/variants.md`,
which is generated from this module, explains them.

Brokers are 1, 2, 3 ("b1" ...), five of them in V13; the topic has one partition led by broker 1, records r0 to r9
are acknowledged by all replicas first, nothing is fsynced. A power cut keeps exactly the first five records
(`keep_records`).

Outcome words: "ok"; "loss" (acks=all records gone, no flagged election); "loss(f)" (gone after a flagged
election); "weak" (only acks=1 records gone); "visible" (a record was read and later gone); joined by "+".

V11, the defects of the ELR itself, is in `elr_defects`.
"""

from dataclasses import replace

from harness.scenarios.common import (
    ALONE_BY_CUTS,
    DIRECTORY_IS_REPLACED,
    KAFKA,
    LOSES_ITS_TAIL_AND_RETURNS,
    RETURN_2_1_3,
    TEN_RECORDS,
    alone_by_isolation,
    cut_off,
    heal,
    inject,
    isolate,
    outcomes,
    power,
    start,
)
from harness.scenarios.elr_defects import ELR_DEFECTS
from harness.scenarios.steps import Append, Join, Poll, Read, Scenario, Step, VersionOutcome, Wait
from nemesis.fault import Fault

_LOSS_OFF = outcomes("loss", "loss", "ok")
_NEGATIVE_CONTROL = outcomes("loss", "loss", "loss(f)")


def _v1(variant: str, title: str, min_isr: int, more: int, expected: dict[str, str]) -> Scenario:
    steps: list[Step] = [*TEN_RECORDS, isolate(2), Wait(fenced=(2,), isr=(1,))]
    if more:
        steps.append(Append(count=more))
    steps += [
        power(1, 5),
        Wait(fenced=(1,), leader=-1),
        start(1),
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
    *,
    brokers: int = 3,
) -> Scenario:
    return Scenario(
        name=f"last-replica-standing:{variant}",
        title=title,
        brokers=brokers,
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
    return _scenario("V3b", title, 3, 2, steps, _LOSS_OFF)


def _v3_away(variant: str, title: str, verb: str, expected: dict[str, str]) -> Scenario:
    """V3c, V3d and V9k: followers 2 and 3 are stopped cleanly, paused, or killed, instead of isolated."""
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
        start(1),
        Wait(unfenced=(1,)),
        heal(f"{verb}-b3"),
        Wait(unfenced=(3,)),
        Wait(has_leader=True),
        Append(count=5),
    ]
    return _scenario(variant, title, 3, 2, steps, expected)


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
        cut_off(2),
        cut_off(3),
        Append(count=1, until_ok=False, in_background=True),
        Wait(isr=(1,)),
        Poll(count=3),
        Join(),
        end,
        Wait(fenced=(1,)),
        heal("cut-12", "cut-13"),
        start(1),
        Wait(unfenced=(1, 2, 3), has_leader=True),
    ]
    return _scenario(variant, title, 3, 2, steps, expected)


def _v6() -> Scenario:
    steps = [*TEN_RECORDS, *alone_by_isolation(), power(1, 5)]
    steps += [Wait(fenced=(1,), leader=-1), *RETURN_2_1_3]
    title = "min ISR 1 promises nothing: a negative control"
    return _scenario("V6", title, 3, 1, steps, _NEGATIVE_CONTROL)


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
    return _scenario("V7", title, 3, 2, steps, _NEGATIVE_CONTROL)


def _v9() -> Scenario:
    steps: list[Step] = [
        *TEN_RECORDS,
        *alone_by_isolation(),
        power(1, 5),
        power(3, 7),
        Wait(fenced=(1,), leader=-1),
        heal("isolate-b2"),
        Wait(unfenced=(2,)),
        start(1),
        Wait(unfenced=(1,)),
        heal("isolate-b3"),
        start(3),
        Wait(unfenced=(3,), has_leader=True),
        Append(count=5),
    ]
    title = "the only member of the ISR and the only member of the ELR both lose power"
    return _scenario("V9", title, 3, 2, steps, _NEGATIVE_CONTROL)


def _v12(
    variant: str, title: str, *, late: int, without: int = 0, expected: dict[str, str]
) -> Scenario:
    """Unclean elections are allowed, and broker 1 loses its tail while the others are alive.

    Args:
        variant: Its name.
        title: One line.
        late: How many of the ten records broker 2 does not have.
        without: A broker that is isolated at the time of the election; 0 for none.
        expected: Outcome by profile family.
    """
    steps: list[Step] = [
        inject(
            "allow-unclean",
            "alter_config",
            topic="t",
            key="unclean.leader.election.enable",
            value="true",
        ),
        Append(count=10 - late),
    ]
    if late:
        steps += [cut_off(2), Append(count=late), Wait(isr=(1, 3))]
    steps += [Read(), *(() if late else (cut_off(2),)), cut_off(3)]
    # As in V3b: one more record, so that a follower lags.
    steps += [Append(count=1, acks=0), Wait(isr=(1,))]
    if without:
        steps += [isolate(without), Wait(fenced=(without,))]
    steps += [
        power(1, 5),
        Wait(fenced=(1,), has_leader=True),
        heal("cut-12", "cut-13", *((f"isolate-b{without}",) if without else ())),
        start(1),
        Wait(unfenced=(1,)),
        Wait(isr=(1, 2, 3)),
        Append(count=5),
    ]
    return _scenario(variant, title, 3, 2, steps, expected)


def _v13(variant: str, lossy: int, expected: dict[str, str]) -> Scenario:
    """Five replicas, min ISR 3: the first `lossy` brokers lose their tails.

    The followers leave in the order 5, 4, 3, 2, so that with ELR on 2 and 3 are in the ELR.
    """
    steps: list[Step] = [*TEN_RECORDS]
    members: tuple[int, ...] = (1, 2, 3, 4, 5)
    for broker in (5, 4, 3, 2):
        members = tuple(member for member in members if member != broker)
        steps += [isolate(broker), Wait(fenced=(broker,), isr=members)]
    steps += [power(broker, 4 + broker) for broker in range(1, lossy + 1)]
    steps.append(Wait(fenced=(1,), leader=-1))
    for broker in (5, 4):
        steps += [heal(f"isolate-b{broker}"), Wait(unfenced=(broker,))]
    steps += [start(1), Wait(unfenced=(1,))]
    for broker in (2, 3):
        steps.append(heal(f"isolate-b{broker}"))
        if broker <= lossy:
            steps.append(start(broker))
        steps.append(Wait(unfenced=(broker,)))
    steps += [Wait(has_leader=True), Append(count=5)]
    noun = "one broker loses" if lossy == 1 else f"{('two', 'three')[lossy - 2]} brokers lose"
    title = f"five replicas, min ISR 3, {noun} the tail"
    return _scenario(variant, title, 5, 3, steps, expected, brokers=5)


VARIANTS: dict[str, Scenario] = {
    "V1": _v1(
        "V1",
        "two replicas, min ISR 1, the last replica loses its tail",
        1,
        5,
        _NEGATIVE_CONTROL,
    ),
    "V1b": _v1(
        "V1b",
        "as V1, nothing written to the last replica",
        1,
        0,
        _NEGATIVE_CONTROL,
    ),
    "V2": _v1("V2", "two replicas, min ISR 2", 2, 0, _LOSS_OFF),
    "V3a": _v3(
        "V3a",
        "followers isolated and fenced, the last replica loses its tail",
        power(1, 5),
        expected=_LOSS_OFF,
    ),
    "V3b": _v3b(),
    "V3c": _v3_away("V3c", "followers stopped cleanly", "stop", _LOSS_OFF),
    "V3d": _v3_away("V3d", "followers paused", "pause", _LOSS_OFF),
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
        outcomes("weak+visible", "weak", "weak"),
    ),
    "V4c": _v4(
        "V4c",
        "acks=1 records on the last replica, which stops cleanly",
        inject("stop-b1", "stop", "b1"),
        outcomes("ok", "ok", "weak"),
    ),
    "V5": _v5(
        "V5",
        "an acks=all request in flight when the ISR shrinks",
        power(1, 10),
        outcomes("visible", "ok", "ok"),
    ),
    "V5b": _v5(
        "V5b",
        "as V5, the leader's process is only killed",
        inject("kill-b1", "kill", "b1"),
        outcomes("ok", "ok", "ok"),
    ),
    "V6": _v6(),
    "V7": _v7(),
    "V8": _v3(
        "V8",
        "only the process is killed: the page cache survives",
        inject("kill-b1", "kill", "b1"),
        expected=outcomes("ok", "ok", "ok"),
    ),
    "V9": _v9(),
    "V9k": _v3_away("V9k", "as V9, but the followers are only killed", "kill", _NEGATIVE_CONTROL),
    "V10a": replace(
        _v3(
            "V10a",
            "the disk of the last replica is replaced by an empty one",
            inject("wipe-b1", "wipe", "b1"),
            expected=_LOSS_OFF,
        ),
        versions={
            KAFKA: (
                # Without ELR, and with it until B-28 was corrected: the id of the new directory erases the ELR.
                VersionOutcome(
                    first="3.4.1", last="4.2.1", outcome="loss", watched=("4.0.2", "4.1.2")
                ),
                VersionOutcome(first="4.3.0", last="4.4.0", outcome="ok", watched=("4.3.1",)),
            )
        },
    ),
    "V10b": replace(
        _scenario(
            "V10b",
            "the log directory of the last replica is replaced by an empty one after an orderly stop",
            3,
            2,
            list(DIRECTORY_IS_REPLACED),
            _LOSS_OFF,
        ),
        log_dirs=2,
        is_simulated_only=True,
    ),
    **ELR_DEFECTS,
    "V12": _v12(
        "V12",
        "unclean elections are allowed, and the first live replica is incomplete",
        late=3,
        expected=outcomes("loss(f)", "loss(f)", "ok"),
    ),
    "V12b": _v12(
        "V12b",
        "as V12, the first live replica is complete",
        late=0,
        expected=outcomes("ok", "ok", "ok"),
    ),
    "V12c": _v12(
        "V12c",
        "as V12, and the member of the ELR is away",
        late=3,
        without=3,
        expected=outcomes("loss(f)", "loss(f)", "loss(f)"),
    ),
    "V13a": _v13("V13a", 1, _LOSS_OFF),
    "V13b": _v13("V13b", 2, _LOSS_OFF),
    "V13c": _v13("V13c", 3, _NEGATIVE_CONTROL),
}
"""Every variant by its name."""
