"""The rows of the APIs of transactions in the table of APIs (`apis.py`)."""

from system_under_test.protocol import messages as m
from system_under_test.protocol.api import BROKER, Api
from system_under_test.protocol.api import one_range as _one

TRANSACTION_APIS: tuple[Api, ...] = (
    Api(
        key=24,
        name="AddPartitionsToTxn",
        module="add_partitions_to_txn",
        roles=(BROKER,),
        canonical=(
            *_one(
                0,
                3,
                m.add_partitions_to_txn_request.AddPartitionsToTxnRequest,
                m.add_partitions_to_txn_response.AddPartitionsToTxnResponse,
            ),
            *_one(
                4,
                5,
                m.add_partitions_to_txns_request.AddPartitionsToTxnRequest,
                m.add_partitions_to_txns_response.AddPartitionsToTxnResponse,
            ),
        ),
        purpose="add partitions to a transaction",
        notes="Versions from 4 on are for brokers, which verify or add the partitions of a producer (KIP-890).",
    ),
    Api(
        key=25,
        name="AddOffsetsToTxn",
        module="add_offsets_to_txn",
        roles=(BROKER,),
        canonical=_one(
            0,
            4,
            m.add_offsets_to_txn_request.AddOffsetsToTxnRequest,
            m.add_offsets_to_txn_response.AddOffsetsToTxnResponse,
        ),
        purpose="add the offsets of a group to a transaction",
    ),
    Api(
        key=26,
        name="EndTxn",
        module="end_txn",
        roles=(BROKER,),
        canonical=_one(0, 5, m.end_txn_request.EndTxnRequest, m.end_txn_response.EndTxnResponse),
        purpose="commit or abort a transaction",
        notes="From version 5 on, the producer gets a new epoch for its next transaction (KIP-890).",
    ),
    Api(
        key=27,
        name="WriteTxnMarkers",
        module="write_txn_markers",
        roles=(BROKER,),
        canonical=_one(
            1,
            2,
            m.write_txn_markers_request.WriteTxnMarkersRequest,
            m.write_txn_markers_response.WriteTxnMarkersResponse,
        ),
        purpose="write the markers that end a transaction; coordinators use it",
        notes="From version 2 on, a marker names the `transaction.version` of its transaction (KIP-1228).",
    ),
    Api(
        key=28,
        name="TxnOffsetCommit",
        module="txn_offset_commit",
        roles=(BROKER,),
        canonical=_one(
            0,
            5,
            m.txn_offset_commit_request.TxnOffsetCommitRequest,
            m.txn_offset_commit_response.TxnOffsetCommitResponse,
        ),
        purpose="store offsets of a group when a transaction is committed",
        notes="Versions up to 2 have no member; the group is then not checked.",
    ),
    Api(
        key=65,
        name="DescribeTransactions",
        module="describe_transactions",
        roles=(BROKER,),
        canonical=_one(
            0,
            0,
            m.describe_transactions_request.DescribeTransactionsRequest,
            m.describe_transactions_response.DescribeTransactionsResponse,
        ),
        purpose="state, producer and partitions of transactional ids (KIP-664)",
        notes="The start of a transaction is 0 where there is none; Kafka reports -1.",
    ),
    Api(
        key=66,
        name="ListTransactions",
        module="list_transactions",
        roles=(BROKER,),
        canonical=_one(
            0,
            2,
            m.list_transactions_request.ListTransactionsRequest,
            m.list_transactions_response.ListTransactionsResponse,
        ),
        purpose="the transactional ids that a broker coordinates",
        notes="Patterns have Python's syntax; Kafka's are those of RE2/J.",
    ),
)
