"""The states of a transactional id, and what each request may change (KIP-98, KIP-360, KIP-890)."""

from dataclasses import replace
from typing import Any

import pytest

from system_under_test.protocol.errors import ErrorCode
from system_under_test.rules import ALL_RULES, Rules
from system_under_test.transaction.records import (
    UnreadableTransactionError,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from system_under_test.transaction.transaction import (
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    Transaction,
    TransactionState,
    completed,
    decided,
    end_outcome,
    initialized,
    refusal,
    with_partitions,
)

STATES = list(TransactionState)
PLACE = ("t", 0)


def transaction(**changes: Any) -> Transaction:
    plain = Transaction(
        transactional_id="x",
        producer_id=7,
        producer_epoch=3,
        timeout_ms=1000,
        state=TransactionState.EMPTY,
        changed_ms=5,
    )
    return replace(plain, **changes)


def init(found: Transaction, producer_id: int = -1, epoch: int = -1, **options: Any) -> Any:
    return initialized(
        found,
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=2000,
        new_producer_id=options.get("new_id"),
        now_ms=9,
        rules=options.get("rules", ALL_RULES),
    )


def test_a_first_producer_gets_epoch_0() -> None:
    made = init(transaction(producer_epoch=NO_EPOCH))
    assert (made.producer_id, made.producer_epoch, made.timeout_ms) == (7, 0, 2000)
    # Also one that had another id, from a coordinator that has forgotten the transactional id.
    assert init(transaction(producer_epoch=NO_EPOCH), 99, 4).producer_epoch == 0


def test_a_new_producer_gets_the_next_epoch() -> None:
    assert init(transaction()).producer_epoch == 4
    assert init(transaction(), rules=Rules(["TXN-10"])).producer_epoch == 3


def test_a_producer_that_goes_on_gets_the_next_epoch_once() -> None:
    made = init(transaction(), 7, 3)
    assert (made.producer_epoch, made.last_producer_epoch) == (4, 3)
    again = init(made, 7, 3)
    assert (again.producer_epoch, again.last_producer_epoch) == (4, 3)


@pytest.mark.parametrize(("producer_id", "epoch"), [(7, 2), (7, 4), (8, 3)])
def test_a_producer_that_was_replaced_is_fenced(producer_id: int, epoch: int) -> None:
    assert init(transaction(), producer_id, epoch) is ErrorCode.PRODUCER_FENCED


def test_an_id_whose_epochs_are_used_up_is_replaced() -> None:
    found = transaction(producer_epoch=EPOCH_MAX - 1)
    made = init(found, new_id=8)
    assert (made.producer_id, made.producer_epoch, made.previous_producer_id) == (8, 0, 7)
    assert init(found) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    # A repeated request still names the previous id.
    assert not isinstance(init(made, 7, EPOCH_MAX - 1), ErrorCode)
    assert init(made, 7, EPOCH_MAX - 2) is ErrorCode.PRODUCER_FENCED


def test_partitions_collect_until_the_end() -> None:
    first = with_partitions(transaction(), (("t", 1),), 10, 0)
    assert (first.state, first.started_ms) == (TransactionState.ONGOING, 10)
    second = with_partitions(first, (("t", 0), ("t", 1)), 20, 0)
    assert second.partitions == (("t", 0), ("t", 1))
    assert (second.started_ms, second.changed_ms) == (10, 20)
    done = completed(decided(second, is_commit=True, now_ms=30, bumps_epoch=False), 40)
    assert (done.state, done.partitions) == (TransactionState.COMPLETE_COMMIT, ())
    assert with_partitions(done, (PLACE,), 50, 0).partitions == (PLACE,)


def test_only_the_last_producer_may_change_a_transaction() -> None:
    assert refusal(transaction(), 7, 3) is None
    assert refusal(transaction(), 8, 3) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert refusal(transaction(), 7, 2) is ErrorCode.PRODUCER_FENCED
    nobody = transaction(producer_epoch=NO_EPOCH)
    assert refusal(nobody, 7, NO_EPOCH) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


ERRORS = {
    "decide": None,
    "none": ErrorCode.NONE,
    "busy": ErrorCode.CONCURRENT_TRANSACTIONS,
    "wrong": ErrorCode.INVALID_TXN_STATE,
}


@pytest.mark.parametrize(
    ("version", "is_commit", "expected"),
    [
        (0, True, ["wrong", "decide", "busy", "busy", "none", "wrong", "wrong"]),
        (0, False, ["wrong", "decide", "busy", "busy", "wrong", "none", "wrong"]),
        (2, True, ["wrong", "decide", "busy", "busy", "wrong", "wrong", "wrong"]),
        (2, False, ["decide", "decide", "busy", "busy", "decide", "decide", "wrong"]),
    ],
)
def test_end_in_every_state(version: int, is_commit: bool, expected: list[str]) -> None:
    for state, word in zip(STATES, expected, strict=True):
        outcome = end_outcome(
            transaction(state=state),
            producer_id=7,
            producer_epoch=3,
            is_commit=is_commit,
            client_version=version,
        )
        assert outcome is ERRORS[word], state


def test_a_repeated_end_of_a_transaction_with_its_own_epoch() -> None:
    ongoing = with_partitions(transaction(), (PLACE,), 1, 2)
    prepared = decided(ongoing, is_commit=True, now_ms=2, bumps_epoch=True, client_version=2)
    assert prepared.producer_epoch == 4

    def end(found: Transaction, epoch: int, *, is_commit: bool = True) -> ErrorCode | None:
        return end_outcome(
            found, producer_id=7, producer_epoch=epoch, is_commit=is_commit, client_version=2
        )

    assert end(prepared, 3) is ErrorCode.CONCURRENT_TRANSACTIONS
    # The producer has the next epoch already, and aborts its next transaction before that has begun.
    assert end(prepared, 4, is_commit=False) is ErrorCode.CONCURRENT_TRANSACTIONS
    done = completed(prepared, 3)
    assert end(done, 3) is ErrorCode.NONE
    assert end(done, 3, is_commit=False) is ErrorCode.INVALID_TXN_STATE
    assert end(done, 2) is ErrorCode.PRODUCER_FENCED


def test_the_last_epoch_of_an_id_ends_with_another_id() -> None:
    ongoing = transaction(producer_epoch=EPOCH_MAX - 1, state=TransactionState.ONGOING)
    prepared = decided(
        ongoing, is_commit=True, now_ms=2, bumps_epoch=True, next_producer_id=8, client_version=2
    )
    assert (prepared.producer_id, prepared.producer_epoch) == (7, EPOCH_MAX)
    # EndTxn returned the other id, so the producer may use it while the markers are on their way.
    for producer_id, epoch in ((7, EPOCH_MAX - 1), (8, 0)):
        outcome = end_outcome(
            prepared,
            producer_id=producer_id,
            producer_epoch=epoch,
            is_commit=False,
            client_version=2,
        )
        assert outcome is ErrorCode.CONCURRENT_TRANSACTIONS
    done = completed(prepared, 3)
    assert (done.producer_id, done.producer_epoch, done.previous_producer_id) == (8, 0, 7)
    assert done.next_producer_id == NO_PRODUCER_ID
    repeated = end_outcome(
        done, producer_id=7, producer_epoch=EPOCH_MAX - 1, is_commit=True, client_version=2
    )
    assert repeated is ErrorCode.NONE


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("state", STATES)
def test_records_are_read_as_they_were_written(version: int, state: TransactionState) -> None:
    partitions = () if state is TransactionState.EMPTY else (("a", 0), ("a", 3), ("b" * 200, 1))
    found = transaction(state=state, partitions=partitions, started_ms=4)
    if version:
        found = replace(found, previous_producer_id=6, next_producer_id=8, client_version=2)
    assert decode_value("x", encode_value(found, version)) == found
    assert decode_key(encode_key("x")) == "x"


def test_the_bytes_are_those_of_kafka() -> None:
    found = transaction(state=TransactionState.ONGOING, partitions=(PLACE,), started_ms=4)
    body = "0000000000000007" + "0003" + "000003e8" + "01"
    times = "0000000000000005" + "0000000000000004"
    plain = "0000" + body + "00000001" + "000174" + "00000001" + "00000000" + times
    assert encode_value(found, 0).hex() == plain
    found = replace(found, client_version=2)
    flexible = "0001" + body + "02" + "0274" + "02" + "00000000" + "00" + times + "01" + "02020002"
    assert encode_value(found, 1).hex() == flexible
    assert encode_key("ab").hex() == "0000" + "00026162"


def test_malformed_records_are_refused() -> None:
    whole = encode_value(transaction(state=TransactionState.ONGOING, partitions=(PLACE,)), 1)
    for size in range(len(whole)):
        with pytest.raises(UnreadableTransactionError):
            decode_value("x", whole[:size])
    for data in (b"\0\5" + whole[2:], whole[:16] + b"\x63" + whole[17:]):
        with pytest.raises(UnreadableTransactionError):
            decode_value("x", data)
    for key in (b"", b"\0\1\0\1x", b"\0\0\0\5x", b"\0\0\0\1\xff"):
        with pytest.raises(UnreadableTransactionError):
            decode_key(key)
