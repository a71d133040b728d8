"""The states of a member of the metadata quorum, and the decisions that lead from one to another.

Six states, as frozen values:

    Unattached   knows an epoch but no leader; may have voted
    Prospective  requests pre-votes in the same epoch: whether it would win an election (pre-vote, RAFT-6)
    Candidate    stands for election in a new epoch, with its own vote
    Leader       leads its epoch
    Follower     follows a known leader
    Resigned     led this epoch and will never lead it again

Observers (brokers) are only ever Unattached or Follower. The functions here are pure: they take states and
return states. `transitions.py` lists the legal transitions; `quorum.py` makes a transition durable and performs
it. The part of a state that must survive a crash is its `Election`: epoch, leader, vote.

Left out: dynamic voters (KIP-853), so the voters are always those of the configuration, and directory ids, which
only dynamic voters need.

Source:
    KIP-595, KIP-996; Kafka's `QuorumState`, `ElectionState`, `EpochElection`.
"""

import json
from dataclasses import dataclass, replace

from system_under_test.invariants import check_invariant
from system_under_test.rules import Rules

NO_NODE = -1
"""No leader known, or no vote cast."""

_NO_DIRECTORY = "AAAAAAAAAAAAAAAAAAAAAA"
"""The zero uuid in Kafka's base 64: a voter without a directory id."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LogPosition:
    """End of a log; a greater one is more up to date (RAFT-5).

    Attributes:
        last_epoch: Quorum epoch of the last record, 0 when the log is empty.
        end_offset: Offset after the last record.
    """

    last_epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Election:
    """Content of the quorum-state file."""

    epoch: int
    leader_id: int = NO_NODE
    voted_id: int = NO_NODE


def encode_election(election: Election) -> bytes:
    """Returns the content of the quorum-state file, Kafka's JSON version 1."""
    content = {
        "leaderId": election.leader_id,
        "leaderEpoch": election.epoch,
        "votedId": election.voted_id,
        "votedDirectoryId": _NO_DIRECTORY,
        "data_version": 1,
    }
    return json.dumps(content).encode()


def decode_election(data: bytes) -> Election:
    """Reads the content of the quorum-state file.

    Raises:
        ValueError: The content is malformed.
    """
    try:
        content = json.loads(data)
    except ValueError as error:
        raise ValueError(f"quorum-state is not JSON: {error}") from error
    if not isinstance(content, dict) or content.get("data_version") not in (0, 1):
        raise ValueError("quorum-state: data_version 0 or 1 expected")
    values = [content.get(name) for name in ("leaderEpoch", "leaderId", "votedId")]
    numbers = [value for value in values if type(value) is int]
    if len(numbers) != len(values):
        raise ValueError("quorum-state: leaderEpoch, leaderId and votedId must be integers")
    epoch, leader_id, voted_id = numbers
    if epoch < 0 or leader_id < NO_NODE or voted_id < NO_NODE:
        raise ValueError("quorum-state: a negative epoch or id")
    return Election(epoch=epoch, leader_id=leader_id, voted_id=voted_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Votes of one election or pre-vote. The own vote is in `granted` from the start."""

    voters: tuple[int, ...]
    granted: frozenset[int] = frozenset()
    rejected: frozenset[int] = frozenset()

    @property
    def majority(self) -> int:
        """Number of votes that win."""
        return len(self.voters) // 2 + 1

    @property
    def is_won(self) -> bool:
        """Whether a majority of the voters granted."""
        return len(self.granted) >= self.majority

    @property
    def is_lost(self) -> bool:
        """Whether so many voters rejected that a majority is no longer possible."""
        return len(self.voters) - len(self.rejected) < self.majority

    def with_response(self, voter_id: int, granted: bool) -> "Tally":
        """Returns the tally with one more response. A vote once granted stays granted."""
        if voter_id not in self.voters or voter_id in self.granted:
            return self
        if granted:
            return replace(
                self, granted=self.granted | {voter_id}, rejected=self.rejected - {voter_id}
            )
        return replace(self, rejected=self.rejected | {voter_id})


@dataclass(frozen=True, slots=True, kw_only=True)
class Unattached:
    """Knows an epoch but no leader of it."""

    epoch: int
    voted_id: int = NO_NODE
    leader_id: int = NO_NODE


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospective:
    """Runs a pre-vote in an epoch whose leader it may know; keeps its vote."""

    epoch: int
    tally: Tally
    voted_id: int = NO_NODE
    leader_id: int = NO_NODE


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Voted for itself and requests the votes of the others."""

    epoch: int
    tally: Tally
    voted_id: int
    leader_id: int = NO_NODE


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """Was elected. Its knowledge of the other members is in `leadership.py`."""

    epoch: int
    voted_id: int
    leader_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """Knows its leader.

    Attributes:
        has_fetched: Whether a fetch from this leader in this epoch succeeded. From then on the leader is known
            to be alive, and pre-votes are refused (RAFT-6).
    """

    epoch: int
    leader_id: int
    voted_id: int = NO_NODE
    has_fetched: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Resigned:
    """Led the epoch and resigned, or restarted in it."""

    epoch: int
    node_id: int
    voted_id: int = NO_NODE
    leader_id: int = NO_NODE


State = Unattached | Prospective | Candidate | Leader | Follower | Resigned


def election_of(state: State) -> Election:
    """Returns what must be durable before the state takes effect (RAFT-1)."""
    # After a restart, a resigned leader still has to know that it led the epoch (RAFT-3).
    leader_id = state.node_id if isinstance(state, Resigned) else state.leader_id
    return Election(epoch=state.epoch, leader_id=leader_id, voted_id=state.voted_id)


def initial_state(
    stored: Election | None,
    *,
    log_epoch: int,
    node_id: int,
    voters: tuple[int, ...],
    pre_vote: bool,
) -> State:
    """Returns the state in which a node starts (RAFT-3).

    Args:
        stored: Content of the quorum-state file, None without a file.
        log_epoch: Epoch of the last record in the log, 0 when it is empty.
        node_id: Id of the node itself.
        voters: The quorum.
        pre_vote: Whether pre-votes are in use; without them a node that voted for itself is a candidate again.
    """
    # [RAFT-3] The log is the newer source if its last epoch is higher.
    if stored is None or stored.epoch < log_epoch:
        return Unattached(epoch=log_epoch)
    is_voter = node_id in voters
    if stored.leader_id == node_id and is_voter:
        # [RAFT-3] Records that the previous process had not flushed may be lost, and (offset, epoch) must stay
        # unique: this node never leads the epoch again.
        return Resigned(epoch=stored.epoch, node_id=node_id, voted_id=stored.voted_id)
    if stored.leader_id in voters and stored.leader_id != node_id:
        return Follower(epoch=stored.epoch, leader_id=stored.leader_id, voted_id=stored.voted_id)
    if stored.voted_id == node_id and is_voter and not pre_vote:
        return Candidate(
            epoch=stored.epoch,
            tally=Tally(voters=voters, granted=frozenset({node_id})),
            voted_id=node_id,
        )
    return Unattached(epoch=stored.epoch, voted_id=stored.voted_id)


def after_hearing(state: State, epoch: int, leader_id: int, *, node_id: int) -> State | None:
    """Returns the state that follows from a message that names an epoch, and perhaps its leader.

    Args:
        state: The current state.
        epoch: The epoch in the message.
        leader_id: Leader of that epoch according to the sender, or `NO_NODE`.
        node_id: Id of the node itself.

    Returns:
        The new state, or None when the message changes nothing.

    Raises:
        InvariantViolation: The epoch has two leaders.
    """
    known_leader = leader_id != NO_NODE and leader_id != node_id
    if epoch > state.epoch:
        if known_leader:
            return Follower(epoch=epoch, leader_id=leader_id)
        return Unattached(epoch=epoch)
    if epoch < state.epoch or not known_leader:
        return None
    if isinstance(state, Unattached | Candidate) or (
        isinstance(state, Prospective) and state.leader_id == NO_NODE
    ):
        return Follower(epoch=epoch, leader_id=leader_id, voted_id=state.voted_id)
    check_invariant(
        not contradicts(state, epoch, leader_id),
        "INV-8",
        "a quorum epoch has one leader",
        state=state,
        named_leader=leader_id,
    )
    return None


def contradicts(state: State, epoch: int, leader_id: int) -> bool:
    """Whether the epoch would have two leaders if `leader_id` were its leader."""
    if epoch != state.epoch or leader_id == NO_NODE or isinstance(state, Unattached | Candidate):
        return False
    leader_here = state.node_id if isinstance(state, Resigned) else state.leader_id
    return leader_here not in (NO_NODE, leader_id)


def begin_pre_vote(state: State, *, node_id: int, voters: tuple[int, ...]) -> Prospective:
    """Returns the state of a node that requests pre-votes: same epoch, same leader, same vote (RAFT-6)."""
    tally = Tally(voters=voters, granted=frozenset({node_id}))
    return Prospective(
        epoch=state.epoch, tally=tally, voted_id=state.voted_id, leader_id=state.leader_id
    )


def begin_election(state: State, *, node_id: int, voters: tuple[int, ...]) -> Candidate:
    """Returns the state of a node that stands for election: the next epoch, its own vote."""
    tally = Tally(voters=voters, granted=frozenset({node_id}))
    return Candidate(epoch=state.epoch + 1, tally=tally, voted_id=node_id)


def give_up_pre_vote(state: Prospective) -> Follower | Unattached:
    """Returns the state after a pre-vote that was not won."""
    if state.leader_id != NO_NODE:
        return Follower(epoch=state.epoch, leader_id=state.leader_id, voted_id=state.voted_id)
    return Unattached(epoch=state.epoch, voted_id=state.voted_id)


def grants_vote(
    state: State,
    *,
    candidate_id: int,
    candidate_log: LogPosition,
    own_log: LogPosition,
    rules: Rules,
) -> bool:
    """Decides a vote in the node's own epoch."""
    # Leader, Candidate, Follower and Resigned never grant a vote in their epoch.
    if not isinstance(state, Unattached | Prospective):
        return False
    if state.voted_id != NO_NODE:
        return state.voted_id == candidate_id
    if state.leader_id != NO_NODE:
        return False
    # [RAFT-5] A leader with a shorter log would lack committed records.
    return candidate_log >= own_log or not rules("RAFT-5")


def grants_pre_vote(
    state: State, *, candidate_log: LogPosition, own_log: LogPosition, rules: Rules
) -> bool:
    """Decides a pre-vote. A pre-vote changes no state and is not stored."""
    # [RAFT-6] For a leader, and for a follower that knows its leader to be alive, an election is not useful.
    if isinstance(state, Leader) or (isinstance(state, Follower) and state.has_fetched):
        return False
    # [RAFT-5] As in the election that would follow.
    return candidate_log >= own_log or not rules("RAFT-5")
