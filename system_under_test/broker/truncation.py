"""Where a follower truncates its log when the leader reports that the two diverge (TRUNC-1)."""

from collections.abc import Sequence


def truncation_point(
    own_epochs: Sequence[tuple[int, int]],
    *,
    leader_epoch: int,
    leader_end_offset: int,
    log_end_offset: int,
) -> int:
    """Returns the offset to truncate to; the log may already end there.

    The leader's response states the largest epoch it has that is not above the follower's last one, and where that
    epoch ends. One step per response is enough: the next fetch is either consistent or diverges at a smaller
    epoch, which is the iteration of KIP-279.

    Args:
        own_epochs: This log's epochs with their first offsets, oldest first.
        leader_epoch: The diverging epoch in the leader's response.
        leader_end_offset: Where the leader's records of that epoch end, exclusive.
        log_end_offset: Of this log.

    Source:
        Kafka's `AbstractFetcherThread.getOffsetTruncationState` and `LeaderEpochFileCache.endOffsetFor`. If all
        epochs of this log are newer than the leader's, the log is cut where the first of them begins, which is the
        log's start unless older records have no epoch (case G of the TLA+ model).
    """
    known_count = sum(epoch <= leader_epoch for epoch, _ in own_epochs)
    if known_count == 0:
        first_end = own_epochs[0][1] if own_epochs else log_end_offset
        return min(first_end, leader_end_offset, log_end_offset)
    own_epoch = own_epochs[known_count - 1][0]
    own_end = own_epochs[known_count][1] if known_count < len(own_epochs) else log_end_offset
    if own_epoch != leader_epoch and known_count < len(own_epochs):
        return min(own_end, log_end_offset)
    return min(own_end, leader_end_offset, log_end_offset)
