"""Every protocol rule that code, tests or documents of this repository name.

A rule is one statement of the replication protocol with a stable identifier. The statement is written here once;
comments and docstrings refer to it by the identifier, and `docs/rules.md` lists all of them with the functions
that apply them. A rule is *switchable* if a defect or a test may switch it off (`rules.Rules`).

The source of a rule is a KIP, a KAFKA ticket, or the Kafka class or setting whose behaviour it describes. "this
project" marks a rule that is stricter than Kafka. It is empty where the rule follows from others.
"""

from system_under_test.rule_catalogue.cluster import CLUSTER_RULES
from system_under_test.rule_catalogue.partitions import PARTITION_RULES
from system_under_test.rule_catalogue.rule import Rule
from system_under_test.rule_catalogue.transactions import TRANSACTION_RULES

FAMILIES: dict[str, str] = {
    "AP": "AlterPartition, leader's side",
    "APC": "AlterPartition, controller's side",
    "CLEAN": "Compaction",
    "CS": "Clean-shutdown markers",
    "CTRL": "The controller",
    "DIR": "Log directories",
    "EC": "Leader-epoch cache",
    "EL": "Elections",
    "ELR": "Eligible leader replicas",
    "FENCE": "Fencing and sessions",
    "FETCH": "Fetch, leader's side",
    "FF": "Fetch, follower's side",
    "FOLL": "Becoming a follower",
    "FS": "What a leader knows of its followers",
    "GRP": "Consumer groups",
    "HW": "High watermark",
    "ISR": "In-sync replicas",
    "LEAD": "Becoming a leader",
    "LIFE": "Life of a broker",
    "LO": "ListOffsets",
    "LOG": "Appending",
    "META": "Metadata",
    "MIN": "min.insync.replicas",
    "PCB": "Partition changes",
    "PID": "Idempotent producers",
    "PROD": "Produce",
    "RAFT": "Metadata quorum",
    "REAS": "Reassignment",
    "REC": "Recovery",
    "REG": "Broker registration",
    "RET": "Retention and the log start",
    "TRUNC": "Truncation",
    "TXN": "Transactions",
}
"""What the letters before the number stand for."""

RULES: dict[str, Rule] = {
    rule.id: rule
    for rule in sorted(
        (*CLUSTER_RULES, *PARTITION_RULES, *TRANSACTION_RULES),
        key=lambda rule: (rule.id.split("-")[0], int(rule.id.split("-")[1])),
    )
}
"""Every rule by its identifier, in the order of families and numbers."""
