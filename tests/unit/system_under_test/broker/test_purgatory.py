"""Deadlines of parked requests: in order, with one timer, and without keeping finished ones."""

import asyncio

from system_under_test.broker.purgatory import COMPACTION_MINIMUM, Purgatory
from tests.unit.system_under_test.broker.node_fakes import now_ms, run_virtually


class Operation:
    def __init__(self, name: str, log: list) -> None:
        self.name = name
        self.log = log
        self.is_done = False

    def expire(self) -> None:
        self.is_done = True
        self.log.append((self.name, now_ms()))

    def abandon(self) -> None:
        self.is_done = True
        self.log.append((self.name, "abandoned"))


def test_operations_expire_in_the_order_of_their_deadlines():
    async def story() -> list:
        log: list = []
        purgatory = Purgatory()
        for name, timeout_s in (("late", 0.3), ("early", 0.1), ("middle", 0.2), ("too", 0.2)):
            purgatory.park(Operation(name, log), timeout_s)
        await asyncio.sleep(1)
        assert purgatory.expired_count == 4
        return log

    expected = [("early", 100.0), ("middle", 200.0), ("too", 200.0), ("late", 300.0)]
    assert run_virtually(story()) == expected


def test_a_completed_operation_does_not_expire():
    async def story() -> list:
        log: list = []
        purgatory = Purgatory()
        done, waiting = Operation("done", log), Operation("waiting", log)
        purgatory.park(done, 0.1)
        purgatory.park(waiting, 0.2)
        done.is_done = True
        assert len(purgatory) == 1
        await asyncio.sleep(1)
        assert len(purgatory) == 0
        return log

    assert run_virtually(story()) == [("waiting", 200.0)]


def test_an_operation_with_zero_timeout_expires_on_the_next_turn():
    async def story() -> list:
        log: list = []
        Purgatory().park(Operation("now", log), -5)
        assert log == []
        await asyncio.sleep(0.001)
        return log

    assert run_virtually(story()) == [("now", 0.0)]


def test_an_operation_parked_by_an_expiration_gets_its_turn():
    async def story() -> list:
        log: list = []
        purgatory = Purgatory()

        class Repeating(Operation):
            def expire(self) -> None:
                super().expire()
                purgatory.park(Operation("second", log), 0.1)

        purgatory.park(Repeating("first", log), 0.1)
        await asyncio.sleep(1)
        return log

    assert run_virtually(story()) == [("first", 100.0), ("second", 200.0)]


def test_finished_operations_do_not_pile_up():
    async def story() -> None:
        purgatory = Purgatory()
        for number in range(20 * COMPACTION_MINIMUM):
            operation = Operation(str(number), [])
            purgatory.park(operation, 1000)
            operation.is_done = True
        assert len(purgatory._heap) <= COMPACTION_MINIMUM

    run_virtually(story())


def test_one_timer_serves_all():
    async def story() -> None:
        purgatory = Purgatory()
        for number in range(10):
            purgatory.park(Operation(str(number), []), 1 + number)
        timers = [timer for timer in asyncio.get_running_loop()._scheduled if not timer.cancelled()]
        assert len(timers) == 1
        purgatory.abandon_all()

    run_virtually(story())


def test_abandoned_operations_complete_in_order_and_the_timer_stops():
    async def story() -> list:
        log: list = []
        purgatory = Purgatory()
        purgatory.park(Operation("late", log), 0.2)
        purgatory.park(Operation("early", log), 0.1)
        purgatory.abandon_all()
        await asyncio.sleep(1)
        assert len(purgatory) == 0
        return log

    assert run_virtually(story()) == [("early", "abandoned"), ("late", "abandoned")]
