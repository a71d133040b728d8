"""The log of a replica: segments, recovery, leader epochs, checkpoints, and the logs of a broker together."""

from system_under_test.log.epochs import LeaderEpochCache
from system_under_test.log.errors import (
    BatchTooLargeError,
    LogDirectoryError,
    OutOfOrderOffsetError,
)
from system_under_test.log.log import AppendInfo, Log
from system_under_test.log.manager import LogManager

__all__ = [
    "AppendInfo",
    "BatchTooLargeError",
    "LeaderEpochCache",
    "Log",
    "LogDirectoryError",
    "LogManager",
    "OutOfOrderOffsetError",
]
