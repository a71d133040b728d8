"""The protocol's rules by name, and the switch that turns one off.

A rule is implemented in exactly one place, which asks `rules("HW-1")` before it applies it. All rules apply
unless a test or a defect (`defects.py`) switches one off; a defect *is* "rule X is not applied".

A rule is listed here as soon as code asks for it; naming one that is not listed is an error, so that a
misspelt switch cannot silently do nothing.
"""

from collections.abc import Iterable
from difflib import get_close_matches

SWITCHABLE_RULES: dict[str, str] = {
    "AP-4": "an AlterPartition error that may have been applied keeps the ISR change pending",
    "APC-1": "the controller checks the broker epoch of AlterPartition",
    "APC-2": "the controller refuses an AlterPartition with an older partition epoch",
    "APC-3": "the controller refuses fenced, stopping or restarted replicas in a new ISR",
    "CS-1": "the clean-shutdown marker is written last and holds the broker epoch",
    "CS-2": "a start is clean only if every directory has the same marker",
    "CS-3": "the clean-shutdown marker is deleted before logs are loaded",
    "CTRL-1": "a controller answers only when the records are committed",
    "EC-1": "a new leader epoch is made durable when it is assigned",
    "EC-3": "an end offset is answered together with the epoch it belongs to",
    "EL-1": "only an acceptable member of the ISR, or of the ELR when the ISR is empty, may be elected",
    "ELR-1": "an ISR of min ISR members empties the ELR",
    "ELR-2": "members that leave an ISR below min ISR enter the ELR",
    "ELR-3": "the ISR may become empty while the ELR is on",
    "ELR-4": "an unclean registration removes a broker from the ELR",
    "ELR-8": "the last-known leader may be elected when ISR and ELR are empty, if it is alive",
    "ELR-9": "a change of min.insync.replicas clears ELRs in the same batch",
    "FENCE-1": "unfencing a broker re-examines partitions without a leader",
    "FENCE-2": "fencing a broker removes it from ISRs and from leadership",
    "FENCE-3": "expired sessions are fenced one by one",
    "FENCE-4": "a new active controller grants every broker a fresh session",
    "FETCH-2": "a fetch is fenced by its leader epoch",
    "FETCH-5": "the leader compares the follower's last fetched epoch with its own",
    "FETCH-6": "a consumer reads below the high watermark only",
    "FF-2": "a follower verifies the checksums of fetched batches before it appends them",
    "FOLL-2": "a fetcher restarts on every leader epoch",
    "FOLL-3": "a deposed leader fails its pending produce requests",
    "FS-1": "only a good, non-diverging fetch updates the follower's state",
    "FS-2": "a fetch of an older broker epoch is refused",
    "GRP-1": "a group's offsets are acknowledged when the high watermark has passed them",
    "GRP-2": "a member that speaks for another generation of its group is refused",
    "HW-1": "the high watermark moves only while the committed ISR has min ISR members",
    "HW-3": "the high watermark waits for the maximal ISR, not the committed one",
    "HW-4": "the high watermark waits for caught-up, eligible replicas outside the ISR",
    "HW-4-ELIGIBLE": "the high watermark waits for no replica outside the ISR that may not join it",
    "HW-5": "the high watermark of a leader never moves back",
    "HW-7": "a truncation lowers the high watermark to the new log end",
    "HW-8": "the high watermark after a start is clamped to the log",
    "HW-9": "a new leader starts from the high watermark it knows, not from its log end",
    "ISR-2": "a shrink counts only when it is committed",
    "ISR-4": "a follower joins the ISR only at the high watermark and the epoch's start",
    "ISR-5": "only an unfenced follower of the current broker epoch may join the ISR",
    "LEAD-2": "a new registration cancels a pending ISR change",
    "LEAD-3": "a new leader records its epoch before it serves",
    "LEAD-5": "a leader re-examines the high watermark when its ISR changes",
    "LIFE-1": "metadata is published only after the broker's own registration was replayed",
    "LO-1": "the latest offset is refused while the high watermark is below the epoch's start",
    "LOG-1": "an acknowledgement does not wait for fsync",
    "PCB-1": "with ELR off the last member never leaves the ISR",
    "PID-1": "a batch that an idempotent producer repeats is not appended again",
    "PID-2": "an idempotent producer's sequences have no gaps",
    "PID-3": "a batch of an older producer epoch is refused",
    "PID-4": "a follower remembers producers while it appends",
    "PID-5": "loading and truncation rebuild what is known of producers",
    "PROD-2": "acks=all is refused below min ISR",
    "PROD-4": "acks=all is acknowledged at the high watermark",
    "PROD-5": "acks=all is not acknowledged if the ISR fell below min ISR before the commit",
    "RAFT-1": "a vote is durable before it is answered",
    "RAFT-2": "a voter fsyncs fetched records before its next fetch",
    "RAFT-5": "a vote is granted only to a candidate whose log is up to date",
    "RAFT-7": "a quorum leader commits only through a record of its own epoch",
    "REC-1": "recovery verifies checksums and cuts the log at the first bad batch",
    "REG-1": "a second incarnation is refused while the session of the first is valid",
    "REG-2": "a registration is clean only if it names the registered broker epoch",
    "REG-3": "with ELR on an unclean registration leaves ISR and ELR",
    "REG-4": "a registration removes the broker from the ISRs it is still in",
    "TRUNC-1": "a follower truncates by epoch, not to its high watermark",
    "TRUNC-3": "a truncation checkpoints the recovery point at once",
}


class Rules:
    """Answers whether a rule applies in this node.

    Args:
        disabled: Identifiers of rules that are switched off.

    Raises:
        ValueError: An identifier is not in `SWITCHABLE_RULES`; the message suggests one.
    """

    def __init__(self, disabled: Iterable[str] = ()) -> None:
        self.disabled = frozenset(disabled)
        for rule in sorted(self.disabled):
            if rule not in SWITCHABLE_RULES:
                near = get_close_matches(rule, SWITCHABLE_RULES, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise ValueError(f"no switchable rule is called {rule!r}{hint}")

    def __call__(self, rule: str) -> bool:
        """Returns whether the rule applies."""
        if rule not in SWITCHABLE_RULES:
            raise ValueError(f"no switchable rule is called {rule!r}")
        return rule not in self.disabled


ALL_RULES = Rules()
