"""Checks stored runs: one row per (run, topic, partition), paths are distributed, judgements come back.

Moving rows from the JVM to Python costs several times the check itself, so no row moves: a task gets the paths of
the files of one partition, reads its columns with PyArrow, and runs the kernels. The driver reads what belongs to
no partition (faults, broker states, the operations' times), and composes the verdict with the same function as
without Spark, so the two cannot differ.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from checkers.compose import (
    PartitionJudgement,
    RunContext,
    compose,
    judgement_from_json,
    judgement_to_json,
    judge_partition_safely,
    verdict_to_json,
)
from checkers.jobs.stored import context_of, partitions_of, read_partition, read_shared
