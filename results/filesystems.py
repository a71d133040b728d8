"""Where tables are stored: a path of this machine, or a URI of a file system that Arrow knows.

Spark and Arrow call the same store by different schemes: `s3a://` and `s3n://` are Hadoop's names for what Arrow
calls `s3://`. The text that a user wrote is kept for Spark; `open_root` translates it for Arrow.
"""

import os
import re

import pyarrow as pa
from pyarrow import fs

from harness.errors import UsageError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_ARROW_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}


def is_uri(text: str) -> bool:
    """Returns whether a text is a URI, and not a path."""
    return _SCHEME.match(text) is not None


def open_root(text: str) -> tuple[fs.FileSystem, str]:
    """Returns the file system of a path or URI, and the path in it.

    Args:
        text: A path, or a URI with the scheme file, s3, s3a, gs or hdfs.

    Raises:
        UsageError: Arrow knows no such file system, or cannot reach it.
    """
    found = _SCHEME.match(text)
    if found is None:
        return fs.LocalFileSystem(), os.path.abspath(text)
    scheme = found.group(1).lower()
    uri = _ARROW_SCHEMES.get(scheme, scheme) + text[found.end(1) :]
    try:
        system, path = fs.FileSystem.from_uri(uri)
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(
            f"{text!r} cannot be opened: {reason} (use a path or a URI with file, s3a, gs or hdfs)"
        ) from None
    return system, path


def spark_path(text: str) -> str:
    """Returns a path or URI as Spark takes it.

    Spark would look for a plain path in its default file system. Options in the query of a URI are Arrow's; Spark
    takes them as configuration (`--spark-conf spark.hadoop.fs.s3a.endpoint=...`).
    """
    if not is_uri(text):
        # Hadoop does not decode percent signs, so the path stays as it is.
        return f"file://{os.path.abspath(text)}"
    base, _ = _without_query(text)
    return re.sub(r"^s3n?://", "s3a://", base)


def child(text: str, *parts: str) -> str:
    """Returns a path or URI below another one."""
    base, query = (text, "") if not is_uri(text) else _without_query(text)
    return "/".join((base.rstrip("/"), *parts)) + query


def _without_query(uri: str) -> tuple[str, str]:
    base, mark, query = uri.partition("?")
    return base, mark + query
