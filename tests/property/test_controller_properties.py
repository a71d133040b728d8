"""Random lives of a small cluster: INV-7 and INV-8 always hold and the ELR is correct.

The model next to the controller is the data: how much of one partition's log each broker has, in memory and on
disk, and how much was ever committed. A leader commits while it has min ISR members, as the high-watermark gate
says. With ELR on, every *running* member of ISR and ELR must have everything committed, and so must every leader
that was not elected with a flag. With ELR off that is not promised (the golden traces show the loss), only the
shape and the epochs are.
"""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from system_under_test.controller.isr_changes import alter_partition
from system_under_test.metadata.records import PartitionChangeRecord
from tests.controller_story import SESSION_NS, Story, alter_request, policy_of

BROKERS = (1, 2, 3)
ANY_BROKER = st.sampled_from(BROKERS)
# Rules return early instead of calling `assume`, which would throw the whole life away.
STEPS = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


class ClusterLife(RuleBasedStateMachine):
    """Brokers come and go, leaders propose ISRs; the data is modelled beside the metadata."""

    profile = "kafka-4.1"
    without: tuple[str, ...] = ()

    @initialize(
        replicas=st.permutations(BROKERS).map(tuple),
        min_isr=st.integers(1, 3),
        unclean=st.booleans(),
    )
    def create(self, replicas, min_isr, unclean):
        self.begin(replicas, min_isr=min_isr, unclean=unclean)

    def begin(self, replicas, *, min_isr, unclean):
        self.s = Story(policy_of(self.profile, without=self.without))
        self.s.start(*BROKERS)
        self.s.topic(replicas, min_isr, unclean=unclean)
        self.min_isr = min_isr
        self.running = set(BROKERS)
        self.log_end = dict.fromkeys(BROKERS, 0)
        self.committed = 0
        self.leader_epoch = 0
        self.log_length = len(self.s.log)

    # --- the controller's side

    @rule(broker_id=ANY_BROKER)
    def expire(self, broker_id):
        """A session ends: the broker died, or its heartbeats were lost."""
        if self.s.image.brokers[broker_id].fenced:
            return
        self.s.fence(broker_id)

    @rule(broker_id=ANY_BROKER, want_fence=st.booleans(), is_behind=st.booleans())
    def beat(self, broker_id, want_fence, is_behind):
        if broker_id not in self.running:
            return
        registered = self.s.image.brokers[broker_id].register_record_offset
        self.s.beat(broker_id, offset=registered - is_behind, want_fence=want_fence)

    @rule(broker_id=ANY_BROKER)
    def sweep(self, broker_id):
        self.s.sweep()

    # --- brokers

    @rule(broker_id=ANY_BROKER, is_lossy=st.booleans(), waits=st.booleans())
    def crash_and_register(self, broker_id, is_lossy, waits):
        """A kill or a power cut, and a new process; registration may be refused while the session lives."""
        self.running.discard(broker_id)
        if is_lossy:
            self.log_end[broker_id] = 0
        if waits:
            self.s.now_ns += 2 * SESSION_NS
        if self.s.register(broker_id).error_code == 0:
            self.running.add(broker_id)

    @rule(broker_id=ANY_BROKER)
    def register_again(self, broker_id):
        if broker_id in self.running:
            return
        self.s.now_ns += 2 * SESSION_NS
        assert self.s.register(broker_id).error_code == 0
        self.running.add(broker_id)

    @rule(broker_id=ANY_BROKER)
    def stop_in_order_and_register(self, broker_id):
        """An orderly stop flushes everything; nothing is lost and the marker proves it."""
        if broker_id not in self.running:
            return
        for _ in range(3):
            if self.s.beat(broker_id, want_stop=True).should_shut_down:
                break
            for other in BROKERS:
                if other in self.running - {broker_id} and self.s.image.is_active(other):
                    self.s.beat(other)
        else:
            # A dead broker that counts as active holds it back. It stops anyway after its timeout, still clean.
            self.s.fence(broker_id)
        self.s.now_ns += 2 * SESSION_NS
        assert self.s.register(broker_id, clean=True).error_code == 0

    # --- data

    def leader(self) -> int | None:
        leader = self.s.p.leader
        return leader if leader in self.running else None

    @rule(count=st.integers(1, 5))
    def produce(self, count):
        leader = self.leader()
        if leader is None:
            return
        self.log_end[leader] += count

    @rule()
    def replicate_and_commit(self):
        """Every ISR member copies the leader's log; with min ISR members the high watermark follows."""
        leader = self.leader()
        isr = self.s.p.isr
        if not (leader is not None and set(isr) <= self.running):
            return
        for member in isr:
            self.log_end[member] = self.log_end[leader]
        if len(isr) >= self.min_isr:
            self.committed = max(self.committed, self.log_end[leader])

    @rule(broker_id=ANY_BROKER)
    def expand(self, broker_id):
        leader, p = self.leader(), self.s.p
        if not (leader is not None and broker_id in self.running):
            return
        if not (broker_id in p.replicas and broker_id not in p.isr):
            return
        self.log_end[broker_id] = self.log_end[leader]
        self.propose((*p.isr, broker_id))

    @rule(broker_id=ANY_BROKER)
    def shrink(self, broker_id):
        leader, p = self.leader(), self.s.p
        if not (leader is not None and broker_id in p.isr and broker_id != leader):
            return
        self.propose(tuple(member for member in p.isr if member != broker_id))

    @rule(
        sender=ANY_BROKER,
        isr=st.lists(st.sampled_from((*BROKERS, 9)), max_size=4),
        leader_epoch_shift=st.integers(-1, 1),
        partition_epoch_shift=st.integers(-1, 1),
        recovery_state=st.integers(0, 1),
        knows_epochs=st.booleans(),
    )
    def send_nonsense(
        self, sender, isr, leader_epoch_shift, partition_epoch_shift, recovery_state, knows_epochs
    ):
        """A proposal that is stale, foreign or malformed changes nothing."""
        p = self.s.p
        is_sensible = (
            sender == p.leader
            and leader_epoch_shift == partition_epoch_shift == 0
            and sender in isr
            and set(isr) <= set(p.replicas)
            and len(set(isr)) == len(isr)
            and (recovery_state == 0 or (p.leader_recovery_state == 1 and len(isr) == 1))
        )
        if is_sensible:
            return
        brokers = self.s.image.brokers
        request = alter_request(
            sender,
            brokers[sender].broker_epoch,
            p.topic_id,
            leader_epoch=p.leader_epoch + leader_epoch_shift,
            partition_epoch=p.partition_epoch + partition_epoch_shift,
            isr=tuple(
                (b, brokers[b].broker_epoch if knows_epochs and b in brokers else -1) for b in isr
            ),
            recovery_state=recovery_state,
        )
        decision = alter_partition(self.s.image, request, self.s.policy)
        assert decision.records == ()
        assert decision.response.topics[0].partitions[0].error_code != 0

    def propose(self, isr):
        response = self.s.propose(*isr)
        if response.error_code == 0:
            assert (response.leader_id, response.isr) == (self.s.p.leader, self.s.p.isr)
            assert response.partition_epoch == self.s.p.partition_epoch
        else:
            assert any(not self.s.image.is_active(member) for member in isr)

    # --- what must hold

    def follow_elections(self):
        """Applies what elections since the last check did to the data, and judges each."""
        p = self.s.p
        flagged = False
        for record in self.s.log[self.log_length :]:
            if isinstance(record, PartitionChangeRecord) and record.leader_recovery_state == 1:
                flagged = True
        self.log_length = len(self.s.log)
        if p.leader_epoch == self.leader_epoch:
            return
        self.leader_epoch = p.leader_epoch
        if p.leader == -1:
            return
        is_recovering = flagged or p.leader_recovery_state == 1
        if p.leader in self.running and is_recovering:
            self.committed = min(self.committed, self.log_end[p.leader])
        if p.leader in self.running:
            assert self.log_end[p.leader] >= self.committed, (
                "a clean leader lacks committed records"
            )
            for broker_id in BROKERS:
                if broker_id in p.replicas:
                    self.log_end[broker_id] = min(self.log_end[broker_id], self.log_end[p.leader])

    @invariant()
    def members_are_complete(self):
        if not hasattr(self, "s"):
            return
        self.follow_elections()
        p = self.s.p
        for member in sorted({*p.isr, *p.elr} & self.running):
            assert self.log_end[member] >= self.committed, (
                f"member {member} lacks committed records"
            )

    def teardown(self):
        """A standby that replays the log ends with the same image."""
        if hasattr(self, "s"):
            standby = Story(self.s.policy)
            standby.write(*self.s.log[1:])
            assert standby.image == self.s.image

    @invariant()
    def with_elr_on_a_live_member_leads(self):
        """Availability: a leaderless partition has no live member of ISR, ELR or last-known leader."""
        if not hasattr(self, "s") or not self.s.image.elr_on:
            return
        p = self.s.p
        if p.leader == -1:
            assert not any(self.s.image.is_active(member) for member in (*p.isr, *p.elr))


class LifeWithElrOff(ClusterLife):
    profile = "kafka-4.0"

    def follow_elections(self):
        """Only shape and epochs are promised, and those are checked with every record."""

    @invariant()
    def members_are_complete(self):
        """Not promised: this is the last-replica-standing bug."""

    @invariant()
    def the_isr_is_never_empty(self):
        if hasattr(self, "s"):
            assert self.s.p.isr
            assert self.s.p.elr == ()


class LifeOn36(LifeWithElrOff):
    profile = "kafka-3.6"


class LifeOn34(LifeWithElrOff):
    profile = "kafka-3.4"


@pytest.mark.parametrize("life", [ClusterLife, LifeWithElrOff, LifeOn36, LifeOn34])
def test_shape_epochs_and_elr_invariants_always_hold(life):
    run_state_machine_as_test(life, settings=STEPS)


class NarrowLife(ClusterLife):
    """The same with one topic layout, so that a search ends soon."""

    @initialize()
    def create(self):
        self.begin((1, 2, 3), min_isr=2, unclean=False)


def without_rule(*rules: str) -> type[ClusterLife]:
    return type("Life", (NarrowLife,), {"without": rules})


SEARCH = settings(
    STEPS,
    max_examples=1000,
    phases=[Phase.generate],
    derandomize=True,
    database=None,
    report_multiple_bugs=False,
)


@pytest.mark.parametrize(
    "life",
    [
        without_rule("ELR-4"),
        without_rule("REG-3"),
        without_rule("EL-1"),
        without_rule("FENCE-1"),
    ],
    ids=lambda life: "without " + " ".join(life.without),
)
def test_the_state_machine_finds_a_missing_rule(life):
    """The properties above are not true by accident: take one rule away and they break."""
    with pytest.raises(AssertionError):
        run_state_machine_as_test(life, settings=SEARCH)
