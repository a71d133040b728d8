"""Rules that protect transactions: in partitions, in the transaction coordinator, and between both."""

from system_under_test.rule_catalogue.rule import Rule, switchable

TRANSACTION_RULES: tuple[Rule, ...] = (
    switchable(
        "CLEAN-4",
        "Compaction stops at the last stable offset. Records of aborted transactions are removed and replace"
        " nothing.",
        "KIP-98; `Cleaner`, `CleanedTransactionMetadata`",
    ),
    switchable(
        "TXN-1",
        "A read_committed consumer reads below the last stable offset: the smaller one of the high watermark and"
        " the first offset of the oldest transaction that is not decided.",
        "KIP-98",
    ),
    switchable(
        "TXN-2",
        "A transaction with a marker is undecided until the high watermark has passed the marker.",
        "KIP-98; `ProducerStateManager.unreplicatedTxns`",
    ),
    switchable(
        "TXN-3",
        "A partition refuses a marker with an older producer epoch than it knows.",
        "KIP-98; `ProducerAppendInfo.checkProducerEpoch`",
    ),
    switchable(
        "TXN-4",
        "A partition refuses a marker of an older coordinator epoch than it knows for the producer.",
        "KIP-98; `ProducerAppendInfo.checkCoordinatorEpoch`",
    ),
    switchable(
        "TXN-5",
        "A fetch response for a read_committed consumer names the aborted transactions that its"
        " records may belong to.",
        "KIP-98",
    ),
    switchable(
        "TXN-6",
        "The decision on a transaction counts, for the producer and for its partitions, when the high watermark"
        " has passed it in the log of the coordinator.",
        "KIP-98",
    ),
    switchable(
        "TXN-7",
        "A new coordinator loads the transactional ids from the log and sends the markers of all transactions that"
        " were decided and not completed.",
        "KIP-98",
    ),
    switchable(
        "TXN-8",
        "A marker is sent until the partition confirms that it is committed; then the transaction is complete.",
        "KIP-98",
    ),
    switchable(
        "TXN-9",
        "A transaction that its coordinator aborts ends with a new epoch, which fences the producer.",
        "KIP-98; `TransactionMetadata.prepareFenceProducerEpoch`",
    ),
    switchable(
        "TXN-10",
        "InitProducerId gives every new producer of a transactional id a new epoch, which fences the one before.",
        "KIP-98, KIP-360",
    ),
    switchable(
        "TXN-11",
        "A transaction that exceeds its timeout is aborted.",
        "KIP-98",
    ),
    switchable(
        "TXN-12",
        "A partition appends the first batch of a transaction only after the coordinator has confirmed that the"
        " partition belongs to it, and not if a marker came in between.",
        "KIP-890",
    ),
    switchable(
        "TXN-13",
        "Offsets that a transaction commits count when its commit marker is in the group's partition.",
        "KIP-98, KIP-447",
    ),
    switchable(
        "TXN-14",
        "Where every transaction has an epoch of its own, a marker ends an open transaction of an older epoch"
        " only: one with the same epoch is that of the transaction before, and late. (Switch"
        " `strict_marker_epochs`; Kafka 4.0 and 4.1 accept it.)",
        "KAFKA-19446, KAFKA-19999, KIP-1228",
    ),
)
"""All of them; `rule_catalogue.RULES` sorts them."""
