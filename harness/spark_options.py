"""The Spark flags of the command line as a value."""

import argparse
import re
from dataclasses import dataclass

from harness.errors import UsageError

_MASTER = re.compile(r"local(-cluster)?(\[[\d*, ]+\])?|yarn|(spark|k8s)://.+")


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """Where Spark jobs run.

    Attributes:
        enabled: False judges in this process (`--no-spark`).
        master: Spark master URL.
        conf: Extra configuration.
    """

    enabled: bool = True
    master: str = "local[2]"
    conf: tuple[tuple[str, str], ...] = ()


def parse_spark_options(options: argparse.Namespace) -> SparkOptions:
    """Reads the flags.

    Raises:
        UsageError: A `--spark-conf` is not of the form key=value, or the master is none that Spark knows.
    """
    if not _MASTER.fullmatch(options.spark_master):
        raise UsageError(
            "--spark-master takes local[2], local[*], yarn, spark://HOST:PORT or k8s://HOST:PORT, "
            f"not {options.spark_master!r}"
        )
    conf = []
    for item in options.spark_conf:
        key, separator, value = item.partition("=")
        if not separator or not key:
            raise UsageError(f"--spark-conf takes key=value, not {item!r}")
        conf.append((key, value))
    return SparkOptions(enabled=not options.no_spark, master=options.spark_master, conf=tuple(conf))
