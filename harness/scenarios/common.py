"""Steps that several scripted scenarios share: three brokers, of which the first leads and loses its tail."""

from harness.scenarios.steps import Append, Read, Step, Wait
from nemesis.fault import Fault

KAFKA = "apache-kafka"
"""The system whose versions have expected outcomes of their own."""

OFF_NO_GATE = "elr-off-no-gate"
OFF = "elr-off"
ON = "elr-on"


def outcomes(no_gate: str, off: str, on: str) -> dict[str, str]:
    """Returns the outcome word of each family of profiles."""
    return {OFF_NO_GATE: no_gate, OFF: off, ON: on}


def inject(fault_id: str, fault: str, *targets: str, **params: object) -> Fault:
    """Returns the step that injects a fault."""
    return Fault(id=fault_id, fault=fault, targets=targets, params=params)


def isolate(broker: int) -> Fault:
    """Returns the step that isolates a broker from all others."""
    return inject(f"isolate-b{broker}", "isolate", f"b{broker}")


def heal(*faults: str) -> Fault:
    """Returns the step that heals faults."""
    return Fault(id="heal-" + "-".join(faults), fault="heal", params={"faults": faults})


def power(broker: int, keep_records: int, **params: object) -> Fault:
    """Returns the step that cuts the power of a broker, which keeps its first records."""
    return inject(f"power-b{broker}", "power", f"b{broker}", keep_records=keep_records, **params)


def start(broker: int) -> Fault:
    """Returns the step that starts a broker."""
    return inject(f"start-b{broker}", "start", f"b{broker}")


TEN_RECORDS: tuple[Step, ...] = (Append(count=10), Read())


def alone_by_isolation(last: int = 1) -> tuple[Step, ...]:
    """Isolates 2, then 3, one fencing after the other, so that 1 is the only member of the ISR."""
    return (
        isolate(2),
        Wait(fenced=(2,), isr=(1, 3)),
        isolate(3),
        Wait(fenced=(3,), isr=(last,)),
    )


def cut_off(broker: int) -> Fault:
    """Returns the step that cuts the link between leader 1 and a follower, which both stay alive."""
    return inject(f"cut-1{broker}", "cut", "b1", f"b{broker}", planes=("inter-broker",))


ALONE_BY_CUTS: tuple[Step, ...] = (
    cut_off(2),
    cut_off(3),
    # A follower whose log end equals the leader's never lags (FS-5), however long it is silent: without one more
    # record the ISR would not shrink. With acks=0 it carries no promise.
    Append(count=1, acks=0),
    Wait(isr=(1,)),
)
"""Leader 1 loses its links to 2 and 3, and is then the only member of the ISR."""

LOSES_ITS_TAIL_AND_RETURNS: tuple[Step, ...] = (
    power(1, 5),
    Wait(fenced=(1,)),
    heal("cut-12", "cut-13"),
    start(1),
    Wait(unfenced=(1,), has_leader=True),
    Wait(isr=(1, 2, 3)),
    Append(count=5),
)
"""What follows `ALONE_BY_CUTS`."""

RETURN_2_1_3: tuple[Step, ...] = (
    heal("isolate-b2"),
    Wait(unfenced=(2,)),
    start(1),
    Wait(unfenced=(1,)),
    heal("isolate-b3"),
    Wait(unfenced=(3,)),
    Wait(has_leader=True),
)
"""The order of the golden trace: the never-ELR replica, the lossy one, then the ELR member."""

DIRECTORY_IS_REPLACED: tuple[Step, ...] = (
    *TEN_RECORDS,
    # The first directory also has the metadata log, without which no broker runs: the second one has to fail.
    inject("move-b1", "move_replica", "b1", partition="t-0"),
    *alone_by_isolation(),
    inject("break-b1", "log_dir_error", "b1", log_dir=2),
    # The broker notices at the next write.
    Append(count=1, acks=1, until_ok=False),
    Wait(leader=-1),
    inject("stop-b1", "stop", "b1"),
    Wait(fenced=(1,)),
    heal("break-b1"),
    inject("replace-b1", "wipe_log_dir", "b1", log_dir=2),
    *RETURN_2_1_3,
    Append(count=5),
)
"""A log directory of broker 1, the last member of the ISR, fails and is replaced after an orderly stop."""
