"""The leader-epoch cache: EC-1 ... EC-6, and the truncation points that two caches give (TRUNC-1)."""

import pytest

from system_under_test.log.epochs import LeaderEpochCache
from system_under_test.rules import Rules
from tests.memory_storage import MemoryStorage

PATH = "data/t-0/leader-epoch-checkpoint"


def cache_of(*entries: tuple[int, int], storage: MemoryStorage | None = None) -> LeaderEpochCache:
    cache = LeaderEpochCache(storage or MemoryStorage(), "data/t-0")
    for epoch, start in entries:
        cache.assign(epoch, start)
    return cache


def truncation_point(follower, follower_end, leader, leader_end, last_fetched_epoch):
    """Runs TRUNC-1 to its end, as fetches of a follower do, and returns where the follower ends up."""
    while (response := leader.end_offset_for(last_fetched_epoch, leader_end)) is not None:
        leader_epoch, epoch_end = response
        if leader_epoch == last_fetched_epoch and epoch_end >= follower_end:
            return follower_end
        mine = follower.end_offset_for(leader_epoch, follower_end)
        if mine is None:
            return 0
        if mine[0] != leader_epoch:
            follower_end = min(mine[1], follower_end)
        else:
            follower_end = min(mine[1], epoch_end, follower_end)
        follower.truncate_from_end(follower_end)
        last_fetched_epoch = follower.latest_epoch
    return follower_end


def test_an_empty_cache_knows_nothing():
    cache = cache_of()
    assert cache.latest_epoch == -1
    assert cache.end_offset_for(0, 10) is None
    assert cache.end_offset_for(-1, 10) is None
    assert cache.epoch_at(0) == -1


def test_the_end_of_an_epoch_is_the_start_of_the_next():
    cache = cache_of((1, 0), (3, 5), (4, 9))
    assert cache.end_offset_for(1, 20) == (1, 5)
    assert cache.end_offset_for(3, 20) == (3, 9)


def test_the_latest_epoch_ends_at_the_log_end():
    assert cache_of((1, 0), (4, 9)).end_offset_for(4, 20) == (4, 20)


def test_the_end_of_an_epoch_between_entries_is_that_of_the_entry_below():
    assert cache_of((1, 0), (4, 9)).end_offset_for(3, 20) == (1, 9)


def test_the_end_of_an_epoch_below_all_entries_keeps_the_requested_epoch():
    assert cache_of((5, 7), (6, 9)).end_offset_for(2, 20) == (2, 7)


def test_an_epoch_above_all_entries_is_undefined():
    assert cache_of((1, 0), (4, 9)).end_offset_for(5, 20) is None


def test_assigning_the_latest_epoch_again_changes_nothing():
    storage = MemoryStorage()
    cache = cache_of((1, 0), (2, 5), storage=storage)
    storage.calls.clear()
    cache.assign(2, 8)
    assert cache.entries == ((1, 0), (2, 5))
    assert storage.calls == []


def test_assigning_removes_entries_that_would_not_increase():
    assert cache_of((1, 0), (2, 5), (4, 9), (3, 12)).entries == ((1, 0), (2, 5), (3, 12))
    assert cache_of((1, 0), (2, 5), (4, 9), (5, 5)).entries == ((1, 0), (5, 5))


def test_an_epoch_without_records_is_replaced_by_the_next_at_the_same_offset():
    assert cache_of((1, 0), (2, 5), (3, 5)).entries == ((1, 0), (3, 5))


def test_negative_numbers_are_refused():
    with pytest.raises(ValueError, match="negative"):
        cache_of((-1, 0))


def test_truncation_drops_the_epochs_that_start_beyond_it():
    """EC-4: at the end."""
    cache = cache_of((1, 0), (2, 5), (4, 9))
    assert cache.truncate_from_end(9)
    assert cache.entries == ((1, 0), (2, 5))
    assert cache.latest_epoch == 2
    assert not cache.truncate_from_end(9)


def test_raising_the_start_rewrites_the_epoch_that_covers_it():
    """EC-4: at the start."""
    cache = cache_of((1, 0), (2, 5), (4, 9))
    assert cache.truncate_from_start(7)
    assert cache.entries == ((2, 7), (4, 9))
    assert not cache.truncate_from_start(7)
    assert not cache.truncate_from_start(3)
    assert cache.truncate_from_start(30)
    assert cache.entries == ((4, 30),)


def test_an_assigned_epoch_survives_a_power_cut():
    storage = MemoryStorage()
    cache_of((1, 0), (2, 5), storage=storage)
    storage.power_cut()
    assert LeaderEpochCache(storage, "data/t-0").entries == ((1, 0), (2, 5))


def test_without_ec1_an_assigned_epoch_does_not_survive():
    storage = MemoryStorage()
    cache = LeaderEpochCache(storage, "data/t-0", Rules(["EC-1"]))
    cache.assign(1, 0)
    assert cache.latest_epoch == 1
    assert LeaderEpochCache(storage, "data/t-0").entries == ()


def test_a_truncation_is_seen_by_the_next_process_and_may_be_undone_by_a_power_cut():
    storage = MemoryStorage()
    cache_of((1, 0), (2, 5), storage=storage).truncate_from_end(5)
    assert LeaderEpochCache(storage, "data/t-0").entries == ((1, 0),)
    storage.power_cut()
    assert LeaderEpochCache(storage, "data/t-0").entries == ((1, 0), (2, 5))


def test_the_file_has_kafkas_format():
    storage = MemoryStorage()
    cache_of((1, 0), (2, 5), storage=storage)
    assert storage.read(PATH) == b"0\n2\n1 0\n2 5\n"


@pytest.mark.parametrize(
    "content",
    [b"", b"0\n", b"0\n2\n1 0\n", b"1\n1\n1 0\n", b"0\n1\n1 x\n", b"0\n1\n1 0", b"0\n1\n-1 0\n",
     b"0\n1\n1\n", b"\xff\xfe", b"0\nmany\n1 0\n", bytes(20)],
)  # fmt: skip
def test_a_torn_or_unparsable_file_is_an_empty_cache(content):
    storage = MemoryStorage()
    storage.write(PATH, content)
    assert LeaderEpochCache(storage, "data/t-0").entries == ()


# The cases of the TLA+ prose. A leader and a follower are (cache entries, log end).


def test_case_a_follower_at_the_leaders_end_keeps_everything():
    leader, follower = cache_of((1, 0)), cache_of((1, 0))
    assert truncation_point(follower, 5, leader, 5, 1) == 5


def test_case_b_follower_behind_the_leader_keeps_everything():
    leader, follower = cache_of((1, 0), (2, 6)), cache_of((1, 0))
    assert truncation_point(follower, 4, leader, 9, 1) == 4


def test_case_c_follower_with_a_longer_tail_of_an_old_epoch_cuts_at_its_end():
    """An example: leader {1:0, 2:2}, follower {1:0} with records to 3."""
    leader, follower = cache_of((1, 0), (2, 2)), cache_of((1, 0))
    assert leader.end_offset_for(1, 4) == (1, 2)
    assert truncation_point(follower, 4, leader, 4, 1) == 2


def test_case_d_follower_with_an_epoch_the_leader_never_saw_cuts_to_the_one_before():
    leader, follower = cache_of((1, 0), (3, 4)), cache_of((1, 0), (2, 3))
    assert truncation_point(follower, 6, leader, 8, 2) == 3


def test_case_e_the_end_of_the_common_epoch_may_lie_lower_on_the_leader():
    leader, follower = cache_of((1, 0), (3, 2)), cache_of((1, 0), (2, 4))
    assert truncation_point(follower, 6, leader, 8, 2) == 2


def test_case_f_several_fast_leader_changes_take_several_steps():
    """KIP-279: one comparison is not enough when both sides have epochs the other never saw."""
    leader = cache_of((1, 0), (2, 2), (5, 6))
    follower = cache_of((1, 0), (3, 4), (4, 5))
    assert truncation_point(follower, 9, leader, 9, 4) == 2


def test_case_g_follower_without_a_common_epoch_drops_everything():
    leader, follower = cache_of((1, 0), (4, 9)), cache_of((2, 0), (3, 5))
    assert truncation_point(follower, 8, leader, 12, 3) == 0
