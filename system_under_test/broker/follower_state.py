"""What a leader knows about one follower.

Kafka keeps an immutable snapshot behind an atomic reference, because fetches and ISR decisions run on different
threads. Here everything runs on one loop without awaiting in between, so one slotted object is changed in place:
no reader can see it half changed, and a fetch allocates nothing.
"""

UNKNOWN_OFFSET = -1
NEVER_NS = -(2**62)
"""A time so long ago that it is outside every lag limit; monotonic clocks may start below zero."""


class FollowerState:
    """One follower's progress, as its fetches show it.

    Attributes:
        log_end_offset: Where its last good fetch began; -1 before the first one of this leadership.
        last_fetch_leader_leo: The leader's log end at that fetch.
        last_fetch_time_ns: When that fetch arrived, on the leader's monotonic clock.
        last_caught_up_time_ns: The latest time at which it is known to have had the leader's whole log.
        broker_epoch: Broker epoch of its last fetch (KIP-903); None before the first one.
    """

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "last_caught_up_time_ns",
        "last_fetch_leader_leo",
        "last_fetch_time_ns",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.log_start_offset = UNKNOWN_OFFSET
        self.log_end_offset = UNKNOWN_OFFSET
        self.last_fetch_leader_leo = 0
        self.last_fetch_time_ns = NEVER_NS
        self.last_caught_up_time_ns = NEVER_NS
        self.broker_epoch: int | None = None

    def record_fetch(
        self,
        *,
        fetch_offset: int,
        log_start_offset: int,
        arrival_ns: int,
        leader_leo: int,
        broker_epoch: int,
    ) -> None:
        """Records a successful, non-diverging fetch (FS-3, FS-4).

        Args:
            fetch_offset: Where the fetch began, which is the follower's log end. It may be lower than
                before: the follower may have truncated.
            log_start_offset: The follower's.
            arrival_ns: When the request arrived.
            leader_leo: The leader's log end before it read for this fetch.
            broker_epoch: The epoch the follower gave, -1 if none.
        """
        # FS-3: two tiers. Either it has all there is now, or it has all there was at its previous fetch; the
        # second keeps a follower in the ISR whose leader appends without pause.
        if fetch_offset >= leader_leo:
            if arrival_ns > self.last_caught_up_time_ns:
                self.last_caught_up_time_ns = arrival_ns
        elif (
            fetch_offset >= self.last_fetch_leader_leo
            and self.last_fetch_time_ns > self.last_caught_up_time_ns
        ):
            self.last_caught_up_time_ns = self.last_fetch_time_ns
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        if leader_leo > self.last_fetch_leader_leo:
            self.last_fetch_leader_leo = leader_leo
        self.last_fetch_time_ns = arrival_ns
        self.broker_epoch = broker_epoch

    def is_caught_up(self, *, leader_leo: int, now_ns: int, lag_max_ns: int) -> bool:
        """Whether the follower counts as in sync (FS-5)."""
        return (
            self.log_end_offset == leader_leo or now_ns - self.last_caught_up_time_ns <= lag_max_ns
        )

    def reset(self, *, is_in_isr: bool, is_new_leader: bool, now_ns: int, leader_leo: int) -> None:
        """Starts a new leader epoch (LEAD-4).

        Args:
            is_in_isr: Whether the follower is in the ISR of the new registration: it then gets the
                benefit of the doubt for one lag limit.
            is_new_leader: Whether this broker did not lead before; what it knew is then worthless.
            now_ns: The time.
            leader_leo: The leader's log end, where the epoch starts.
        """
        self.last_caught_up_time_ns = now_ns if is_in_isr else NEVER_NS
        if is_new_leader:
            self.log_end_offset = UNKNOWN_OFFSET
            self.log_start_offset = UNKNOWN_OFFSET
            self.last_fetch_leader_leo = UNKNOWN_OFFSET
            self.last_fetch_time_ns = NEVER_NS
            self.broker_epoch = None
        else:
            self.last_fetch_leader_leo = leader_leo
            self.last_fetch_time_ns = now_ns if is_in_isr else NEVER_NS
