"""Rules that protect transactions: in partitions, in the transaction coordinator, and between both."""

from system_under_test.rule_catalogue.rule import Rule, switchable

TRANSACTION_RULES: tuple[Rule, ...] = (
    switchable(
        "CLEAN-4",
        "Compaction stops at the last stable offset. Records of aborted transactions are removed and replace nothing.",
        "KIP-98; `Cleaner`, `CleanedTransactionMetadata`",
    ),
    switchable(
        "TXN-1",
        "A read_committed consumer reads below the last stable offset: the smaller one of the high watermark and the"
        " first offset of the oldest transaction that is not decided.",
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
        "A fetch response for a read_committed consumer names the aborted transactions that its records may belong to.",
        "KIP-98",
    ),
)
"""All of them; `rule_catalogue.RULES` sorts them."""
