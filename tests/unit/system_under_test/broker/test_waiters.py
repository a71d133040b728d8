"""Requests that wait for a partition: their order, and what happens while they are notified."""

from system_under_test.broker.produce_wait import ProduceWait
from system_under_test.broker.waiters import Waiters
from system_under_test.protocol.errors import ErrorCode


def append_to(offset):
    wait = ProduceWait(0, ErrorCode.REQUEST_TIMED_OUT)
    wait.required_offset = offset
    wait.is_done = False
    return wait


class Leaving:
    """A parked fetch that leaves the list when it is notified."""

    def __init__(self, waits, number):
        self.waits, self.number = waits, number
        self.bounds = []
        waits[number] = self

    def bound_moved(self, bound):
        self.bounds.append(bound)
        del self.waits[self.number]

    def role_changed(self):
        self.bound_moved(None)


def test_appends_are_taken_in_the_order_of_their_offsets():
    waiters = Waiters()
    for offset in (5, 9, 7):  # the last repeats an earlier batch
        waiters.add_produce(append_to(offset))
    assert [wait.required_offset for wait in waiters.take_committed(7)] == [5, 7]
    assert [wait.required_offset for wait in waiters.produces] == [9]


def test_an_append_that_timed_out_is_dropped_silently():
    waiters = Waiters()
    expired = append_to(3)
    waiters.add_produce(expired)
    expired.is_done = True
    assert list(waiters.take_committed(3)) == []
    assert not waiters.produces


def test_an_append_may_be_added_while_others_are_completed():
    waiters = Waiters()
    waiters.add_produce(append_to(1))
    taken = []
    for wait in waiters.take_committed(2):
        taken.append(wait.required_offset)
        if len(taken) == 1:
            waiters.add_produce(append_to(2))
    assert taken == [1, 2]


def test_every_append_fails_once():
    waiters = Waiters()
    waits = [append_to(1), append_to(2)]
    for wait in waits:
        waiters.add_produce(wait)
    waiters.fail_produces(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert [wait.error for wait in waits] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert not waiters.produces


def test_fetches_may_be_removed_while_they_are_notified():
    waiters = Waiters()
    followers = [Leaving(waiters.follower_fetches, number) for number in (1, 2)]
    consumers = [Leaving(waiters.consumer_fetches, number) for number in (3, 4)]
    waiters.wake_followers(10)
    assert [fetch.bounds for fetch in (*followers, *consumers)] == [[10], [10], [], []]
    waiters.role_changed()
    assert [fetch.bounds for fetch in consumers] == [[None], [None]]
    assert (waiters.follower_fetches, waiters.consumer_fetches) == ({}, {})
