"""V11: the reference system with a defect of the ELR itself, and a disk that only pretends to write.

Each variant switches off the rules of one defect (`docs/defects.md`) and shows in few steps what clients lose by
it where ELR is on. The invariant monitor would end most of these runs at the first consequence, so it does not
watch them. Steps and outcome words are those of `last_replica_standing`.
"""

from dataclasses import replace

from harness.scenarios.common import (
    DIRECTORY_IS_REPLACED,
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
from harness.scenarios.kafka_bugs import VARIANTS as KAFKA_BUGS
from harness.scenarios.steps import (
    Append,
    Join,
    Observe,
    Poll,
    Scenario,
    Step,
    Wait,
)
from nemesis.fault import Fault

DEFECTS: dict[str, str] = {
    "V11a": "B-18",
    "V11b": "B-25",
    "V11c": "B-26",
    "V11d": "B-27",
    "V11e": "B-28",
    "V11f": "B-29",
    "V11g": "B-30",
    "V11h": "B-30b",
    "V11i": "B-31",
    "V11j": "B-34",
    "V11k": "B-49",
}
"""The defect of each variant that has one."""

_IN_EVERY_PROFILE = outcomes("loss", "loss", "loss")
_ONLY_WITH_ELR = outcomes("ok", "ok", "loss")
ELECTED_MS = 3_000
"""How long an election may take that only the defect makes possible; it takes a few milliseconds."""


def _scenario(
    variant: str,
    title: str,
    rules: tuple[str, ...],
    steps: tuple[Step, ...],
    expected: dict[str, str],
    *,
    min_isr: int = 2,
) -> Scenario:
    return Scenario(
        name=f"last-replica-standing:{variant}",
        title=title,
        replication_factor=3,
        min_insync_replicas=min_isr,
        steps=steps,
        expected=expected,
        disabled_rules=rules,
        is_watched=False,
    )


def _set_min_isr(value: int) -> Fault:
    return inject("min-isr", "alter_config", topic="t", key="min.insync.replicas", value=str(value))


_LOSES_ITS_TAIL: tuple[Step, ...] = (
    *TEN_RECORDS,
    *alone_by_isolation(),
    power(1, 5),
    Wait(fenced=(1,), leader=-1),
    *RETURN_2_1_3,
    Append(count=5),
)

_IN_FLIGHT: tuple[Step, ...] = (
    *TEN_RECORDS,
    cut_off(2),
    cut_off(3),
    Append(count=1, until_ok=False, in_background=True),
    Wait(isr=(1,)),
    Poll(count=3),
    Join(),
    inject("kill-b1", "kill", "b1"),
    Wait(fenced=(1,)),
    heal("cut-12", "cut-13"),
    start(1),
    Wait(unfenced=(1, 2, 3), has_leader=True),
)

_AFTER_AN_EARLIER_STOP: tuple[Step, ...] = (
    *TEN_RECORDS,
    inject("stop-b1", "stop", "b1"),
    Wait(fenced=(1,), has_leader=True),
    start(1),
    Wait(isr=(1, 2, 3)),
    Append(count=5),
    *alone_by_isolation(),
    power(1, 12),
    Wait(fenced=(1,), leader=-1),
    *RETURN_2_1_3,
    Append(count=5),
)

_LEFT_BEHIND: tuple[Step, ...] = (
    *TEN_RECORDS,
    isolate(3),
    Wait(fenced=(3,), isr=(1, 2)),
    isolate(2),
    Wait(fenced=(2,), isr=(1,)),
    heal("isolate-b3"),
    Wait(isr=(1, 3)),
    # Broker 2 does not have these, so it must not be eligible any more.
    Append(count=5),
    inject("isolate-both", "isolate", "b1", "b3"),
    Wait(fenced=(1, 3), leader=-1),
    heal("isolate-b2"),
    Wait(unfenced=(2,)),
    Observe(until=Wait(has_leader=True), limit_ms=ELECTED_MS),
    heal("isolate-both"),
    Wait(unfenced=(1, 2, 3), has_leader=True),
    Append(count=5),
)

_LOWERED_FOR_THE_LAST: tuple[Step, ...] = (
    *TEN_RECORDS,
    *alone_by_isolation(),
    _set_min_isr(1),
    Append(count=5),
    inject("kill-b1", "kill", "b1"),
    Wait(fenced=(1,)),
    heal("isolate-b2", "isolate-b3"),
    Wait(unfenced=(2, 3)),
    Observe(until=Wait(has_leader=True), limit_ms=ELECTED_MS),
    start(1),
    Wait(unfenced=(1,), has_leader=True),
    Append(count=5),
)

_NEVER_WRITTEN: tuple[Step, ...] = (
    *TEN_RECORDS,
    *alone_by_isolation(),
    inject("stop-b1", "stop", "b1"),
    Wait(fenced=(1,), leader=-1),
    inject("cut-tail-b1", "truncate_file", "b1", bytes=300),
    *RETURN_2_1_3,
    Append(count=5),
)


def _of_kafka(variant: str, rule: str, expected: dict[str, str]) -> Scenario:
    """Returns a scenario of a bug of Apache Kafka, with the defect that is that bug."""
    bug = KAFKA_BUGS[DEFECTS[variant]]
    return replace(
        bug,
        name=f"last-replica-standing:{variant}",
        title=f"{DEFECTS[variant]}: {bug.title}",
        expected=expected,
        versions={},
        features={},
        disabled_rules=(rule,),
        is_watched=False,
    )


ELR_DEFECTS: dict[str, Scenario] = {
    "V11a": _scenario(
        "V11a",
        "B-18, as V5b: the high watermark moves below min ISR",
        ("HW-1",),
        _IN_FLIGHT,
        outcomes("ok", "ok", "visible"),
    ),
    "V11b": _scenario(
        "V11b",
        "B-25, as V3a: an unclean registration changes nothing",
        ("REG-3",),
        _LOSES_ITS_TAIL,
        _IN_EVERY_PROFILE,
    ),
    "V11c": _scenario(
        "V11c",
        "B-26: the marker of an earlier orderly stop survives",
        ("REG-2", "CS-3"),
        _AFTER_AN_EARLIER_STOP,
        _IN_EVERY_PROFILE,
    ),
    "V11d": _scenario(
        "V11d",
        "B-27, as V3a: an unclean registration leaves the broker in the ELR",
        ("ELR-4",),
        _LOSES_ITS_TAIL,
        _IN_EVERY_PROFILE,
    ),
    "V11e": _of_kafka("V11e", "DIR-5", _IN_EVERY_PROFILE),
    "V11f": replace(_of_kafka("V11f", "ELR-9-EPOCH", _ONLY_WITH_ELR), is_simulated_only=True),
    "V11g": _scenario(
        "V11g",
        "B-30: a broker stays in the ELR while others commit without it",
        ("ELR-1",),
        _LEFT_BEHIND,
        _ONLY_WITH_ELR,
    ),
    "V11h": _scenario(
        "V11h",
        "B-30b: the ELR survives that min ISR is lowered to the size of the ISR",
        ("ELR-9",),
        _LOWERED_FOR_THE_LAST,
        _ONLY_WITH_ELR,
    ),
    "V11i": _of_kafka("V11i", "MIN-2", _IN_EVERY_PROFILE),
    "V11j": _of_kafka("V11j", "REAS-4", _ONLY_WITH_ELR),
    "V11k": replace(
        _scenario(
            "V11k",
            "B-49, as V10b: the marker of one directory vouches for all",
            ("CS-2",),
            DIRECTORY_IS_REPLACED,
            _IN_EVERY_PROFILE,
        ),
        log_dirs=2,
        is_simulated_only=True,
    ),
    "V11l": replace(
        _scenario(
            "V11l",
            "no defect: the disk confirmed writes that it never made, and the last replica stops cleanly",
            (),
            _NEVER_WRITTEN,
            _IN_EVERY_PROFILE,
        ),
        # Other systems may not expect a torn batch after an orderly stop.
        is_simulated_only=True,
    ),
}
"""Every variant of V11 by its name."""
