"""The simulated network against the real one: the same little script on both, with the same outcomes.

Each row of the table is a situation of the design's behaviour table. The script runs in a simulated world, and on
two network namespaces with real TCP between them; what a program sees has to be the same, at about the same time.
Retry times of TCP, by kernel version, have separate tests.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.simulation.connect import LISTEN_BACKLOG
from harness.simulation.pipe import SEND_BUFFER_BYTES
from nemesis.agent.packets.namespace import Namespace
from tests.containers.network_rig import RigHost, hosts_or_skip, why_not
from tests.containers.network_stages import Model, Real, Seen, Stage
from tests.parts import shares

pytestmark = pytest.mark.containers

LATE_MS = 150
RTO_SLACK_MS = 700
"""A machine that was busy during the handshake has measured a longer round trip, and retransmits later."""
LOSSY_CONNECTIONS = 40


@pytest.fixture(scope="module")
def rig() -> Iterator[tuple[RigHost, RigHost, dict[str, Namespace]]]:
    with hosts_or_skip(2, why_not()) as (a, b), contextlib.ExitStack() as stack:
        nets = {
            name: stack.enter_context(contextlib.closing(Namespace(host.pid)))
            for name, host in (("a", a), ("b", b))
        }
        yield a, b, nets


@pytest.fixture
def real(rig: tuple[RigHost, RigHost, dict[str, Namespace]]) -> Iterator[Real]:
    stage = Real(*rig)
    try:
        for node in "ab":  # what the row before left half closed would be counted in this one
            stage.reset_connections(node)
        yield stage
    finally:
        stage.close()


# -- the table


def connects(stage: Stage) -> list[Seen]:
    return [stage.connect(1)]


def connect_to_a_dead_process(stage: Stage) -> list[Seen]:
    stage.kill()
    return [stage.connect(1)]


def connect_to_an_unused_address(stage: Stage) -> list[Seen]:
    return [stage.connect(5, to="nobody")]


def connect_while_all_is_dropped(stage: Stage) -> list[Seen]:
    stage.cut()
    return [stage.connect(0.6)]


def connect_while_requests_are_dropped(stage: Stage) -> list[Seen]:
    stage.cut("a_to_b")
    return [stage.connect(0.6)]


def connect_while_responses_are_dropped(stage: Stage) -> list[Seen]:
    stage.cut("b_to_a")
    return [stage.connect(0.6)]


def connect_in_progress_when_healed(stage: Stage) -> list[Seen]:
    token = stage.cut()
    pending = stage.start_connect()
    stage.wait(0.4)
    stage.heal(token)
    return [stage.await_(pending, 5)]


def new_connection_after_healing(stage: Stage) -> list[Seen]:
    token = stage.cut()
    before = stage.connect(0.3)
    stage.heal(token)
    return [before, stage.connect(1)]


def existing_connection_is_cut(stage: Stage) -> list[Seen]:
    connection = stage.open()
    token = stage.cut()
    pending = stage.send(connection)
    during = stage.await_(pending, 1)
    stage.heal(token)
    return [during, stage.await_(pending, 5)]


def recovery_after_four_seconds(stage: Stage) -> list[Seen]:
    connection = stage.open()
    token = stage.cut("a_to_b")
    pending = stage.send(connection)
    stage.wait(4)
    stage.heal(token)
    return [stage.await_(pending, 30)]


def idle_connection_does_not_notice(stage: Stage) -> list[Seen]:
    connection = stage.open()
    token = stage.cut()
    stage.wait(1)
    stage.heal(token)
    return [stage.await_(stage.send(connection), 5)]


def one_way_drop_lets_a_response_through(stage: Stage) -> list[Seen]:
    first, second = stage.open(), stage.open()
    answered = stage.send(first, takes_ms=300)
    stage.wait(0.1)
    stage.cut("a_to_b")
    stalled = stage.send(second)
    return [stage.await_(answered, 2), stage.await_(stalled, 1)]


def one_way_drop_stalls_the_response(stage: Stage) -> list[Seen]:
    connection = stage.open()
    token = stage.cut("b_to_a")
    pending = stage.send(connection)
    during = stage.await_(pending, 0.5)
    stage.heal(token)
    return [during, stage.await_(pending, 5)]


def drop_at_the_sender_and_another_request(stage: Stage) -> list[Seen]:
    connection = stage.open()
    token = stage.cut("a_to_b", at="sender")
    first = stage.send(connection)
    during = stage.await_(first, 2.0)
    stage.heal(token)
    second = stage.send(connection)
    return [during, stage.await_(second, 5)]


def overlapping_cuts(stage: Stage) -> list[Seen]:
    first, second = stage.cut(), stage.cut("a_to_b")
    stage.heal(first)
    during = stage.connect(0.4)
    stage.heal(second)
    return [during, stage.connect(1)]


def killed_server(stage: Stage) -> list[Seen]:
    connection = stage.open()
    pending = stage.send(connection, takes_ms=5000)
    stage.wait(0.1)
    stage.kill()
    return [Seen(outcome=stage.await_(pending, 2).outcome, ms=0), stage.connect(1)]


def power_loss(stage: Stage) -> list[Seen]:
    connection = stage.open()
    stage.power_off()
    pending = stage.send(connection)
    during = stage.await_(pending, 1.0)
    stage.start()
    return [during, stage.await_(pending, 10), stage.connect(1)]


def paused_server_is_connected_to(stage: Stage) -> list[Seen]:
    stage.pause()
    count = stage.connect_all(LISTEN_BACKLOG + 4, 0.5)
    return [Seen(outcome=f"{count} connected", ms=0)]


def paused_server_responds_when_resumed(stage: Stage) -> list[Seen]:
    connection = stage.open()
    stage.pause()
    pending = stage.send(connection)
    during = stage.await_(pending, 0.7)
    stage.resume()
    return [during, stage.await_(pending, 2)]


def rejected(stage: Stage) -> list[Seen]:
    connection = stage.open()
    token = stage.reject()
    pending = stage.send(connection)
    seen = [stage.await_(pending, 1), stage.connect(1)]
    stage.heal(token)
    return [*seen, stage.connect(1)]


def sockets_destroyed_here(stage: Stage) -> list[Seen]:
    connection = stage.open()
    pending = stage.send(connection, takes_ms=5000)
    stage.wait(0.1)
    count = stage.reset_connections("a")
    return [Seen(outcome=f"{count} destroyed", ms=0), stage.await_(pending, 1)]


def sockets_destroyed_there(stage: Stage) -> list[Seen]:
    connection = stage.open()
    pending = stage.send(connection, takes_ms=5000)
    stage.wait(0.1)
    count = stage.reset_connections("b")
    return [Seen(outcome=f"{count} destroyed", ms=0), stage.await_(pending, 1)]


def delayed(stage: Stage) -> list[Seen]:
    connection = stage.open()
    token = stage.delay(100)
    late = stage.await_(stage.send(connection), 2)
    stage.heal(token)
    return [late, stage.await_(stage.send(connection), 2)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A situation.

    Attributes:
        script: What happens.
        outcomes: What a program must see by design; the model is compared with it as well.
        slack_ms: How far the times of model and kernel may differ.
    """

    script: Callable[[Stage], list[Seen]]
    outcomes: tuple[str, ...]
    slack_ms: float = 60


TABLE = (
    Row(script=connects, outcomes=("connected",)),
    Row(script=connect_to_a_dead_process, outcomes=("refused",)),
    Row(script=connect_to_an_unused_address, outcomes=("unreachable",), slack_ms=300),
    Row(script=connect_while_all_is_dropped, outcomes=("silence",)),
    Row(script=connect_while_requests_are_dropped, outcomes=("silence",)),
    Row(script=connect_while_responses_are_dropped, outcomes=("silence",)),
    Row(script=connect_in_progress_when_healed, outcomes=("connected",), slack_ms=200),
    Row(script=new_connection_after_healing, outcomes=("silence", "connected")),
    Row(script=existing_connection_is_cut, outcomes=("silence", "answered"), slack_ms=RTO_SLACK_MS),
    Row(script=idle_connection_does_not_notice, outcomes=("answered",)),
    Row(script=one_way_drop_lets_a_response_through, outcomes=("answered", "silence")),
    Row(
        script=one_way_drop_stalls_the_response,
        outcomes=("silence", "answered"),
        slack_ms=RTO_SLACK_MS,
    ),
    Row(script=drop_at_the_sender_and_another_request, outcomes=("silence", "answered")),
    Row(script=overlapping_cuts, outcomes=("silence", "connected")),
    Row(script=killed_server, outcomes=("reset", "refused")),
    Row(script=power_loss, outcomes=("silence", "reset", "connected"), slack_ms=RTO_SLACK_MS),
    Row(script=paused_server_is_connected_to, outcomes=(f"{LISTEN_BACKLOG + 1} connected",)),
    Row(script=paused_server_responds_when_resumed, outcomes=("silence", "answered")),
    Row(script=rejected, outcomes=("reset", "refused", "connected")),
    Row(script=sockets_destroyed_here, outcomes=("1 destroyed", "aborted")),
    Row(script=sockets_destroyed_there, outcomes=("1 destroyed", "reset")),
    Row(script=delayed, outcomes=("answered", "answered"), slack_ms=20),
)


@pytest.mark.parametrize(
    "row", shares(TABLE, quick_of=2), ids=[row.script.__name__ for row in TABLE]
)
def test_the_kernel_does_what_the_model_says(row: Row, real: Real) -> None:
    model_saw = row.script(Model(1))
    assert tuple(seen.outcome for seen in model_saw) == row.outcomes
    real_saw = row.script(real)
    assert [seen.outcome for seen in real_saw] == [seen.outcome for seen in model_saw]
    for ours, theirs in zip(model_saw, real_saw, strict=True):
        assert theirs.ms == pytest.approx(ours.ms, abs=row.slack_ms), (model_saw, real_saw)


@pytest.mark.slow
def test_traffic_resumes_within_five_seconds_after_a_four_second_cut(real: Real) -> None:
    for stage in (Model(1), real):
        (seen,) = recovery_after_four_seconds(stage)
        assert seen.outcome == "answered"
        assert 0 < seen.ms - 4000 < 5000


def late_and_completed(stage: Stage, seconds: float) -> tuple[int, int]:
    """How many of many requests were late under 20 % loss, and how many got a response in the end."""
    connections = [stage.open() for _ in range(LOSSY_CONNECTIONS)]
    stage.loss(20)
    pending = [stage.send(connection) for connection in connections]
    stage.wait(LATE_MS / 1000)
    in_time = {n for n, one in enumerate(pending) if stage.await_(one, 0.001).outcome == "answered"}
    rest = [one for n, one in enumerate(pending) if n not in in_time]
    later = [stage.await_(one, seconds).outcome for one in rest].count("answered")
    return len(rest), len(in_time) + later


def test_packet_loss_delays_some_responses_and_loses_none(real: Real) -> None:
    for stage in (Model(1), Model(2), real):
        late, answered = late_and_completed(stage, 40)
        # A request and its response both pass in 64 % of all cases.
        assert 3 <= late <= 28, stage
        assert answered == LOSSY_CONNECTIONS


def test_a_stopped_process_buffers_about_as_much_data_as_the_model_allows(
    real: Real,
) -> None:
    connection = real.open()
    real.pause()
    connection.setblocking(False)
    taken = 0
    deadline_s = time.monotonic() + 1
    while time.monotonic() < deadline_s:
        try:
            taken += connection.send(bytes(65536))
        except BlockingIOError:
            time.sleep(0.02)
    assert SEND_BUFFER_BYTES / 8 < taken < SEND_BUFFER_BYTES * 16


# -- when TCP tries again


def connect_healed_after_one_and_a_half_seconds(stage: Stage) -> Seen:
    token = stage.cut()
    pending = stage.start_connect()
    stage.wait(1.5)
    stage.heal(token)
    return stage.await_(pending, 6)


@pytest.mark.parametrize(("linear", "expected_ms"), [(0, 3000), (4, 2000)])
def test_older_and_newer_kernels_retry_a_connect_when_the_model_predicts(
    real: Real, rig: tuple[RigHost, RigHost, Any], linear: int, expected_ms: int
) -> None:
    """Since Linux 6.5 the first four retries are a second apart; before, TCP backed off from the first one on."""
    name = "net/ipv4/tcp_syn_linear_timeouts"
    host = rig[0]
    if not host.inside(lambda: Path("/proc/sys", name).exists()):
        pytest.skip(f"this kernel has no {name}")
    before = host.inside(lambda: Path("/proc/sys", name).read_text())
    host.inside(lambda: Path("/proc/sys", name).write_text(str(linear)))
    try:
        seen = connect_healed_after_one_and_a_half_seconds(real)
    finally:
        host.inside(lambda: Path("/proc/sys", name).write_text(before))
    model = Model(1, syn_linear_timeouts=linear)
    assert connect_healed_after_one_and_a_half_seconds(model).ms == pytest.approx(
        expected_ms, abs=20
    )
    assert seen.outcome == "connected"
    assert seen.ms == pytest.approx(expected_ms, abs=300)


def request_dropped_at_the_sender(stage: Stage) -> Seen:
    connection = stage.open()
    token = stage.cut("a_to_b", at="sender")
    pending = stage.send(connection)
    stage.wait(2)
    stage.heal(token)
    return stage.await_(pending, 10)


def test_a_sender_that_writes_no_more_waits_for_the_next_retransmission(real: Real) -> None:
    """The kernel backs off for a drop at its own output, too; the table has what the next write does."""
    ours = request_dropped_at_the_sender(Model(1))
    theirs = request_dropped_at_the_sender(real)
    assert ours.ms == pytest.approx(3360, abs=20)
    assert theirs.outcome == ours.outcome == "answered"
    assert theirs.ms == pytest.approx(ours.ms, abs=RTO_SLACK_MS)
