"""Where files are stored: a path of this machine, or a URI of a file system that Arrow knows.

The schemes are `file`, `s3` (also `s3a` and `s3n`, Hadoop's names for the same), `gs` and `hdfs`. Credentials come
from where each file system usually finds them: the environment variables `AWS_ACCESS_KEY_ID` and
`AWS_SECRET_ACCESS_KEY`, files such as `~/.aws/credentials`, or the machine's role. The variable `AWS_ENDPOINT_URL`
names a server that is compatible with S3; so does `?endpoint_override=HOST:PORT&scheme=http` at the end of a URI.

Every access has a limit of time, because a night must end although its store does not respond.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from harness.errors import UsageError

CONNECT_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 60.0
ATTEMPTS_MAX = 3
"""A store that does not respond is reported after about half a minute."""

SCHEMES = ("file", "s3", "gs", "hdfs", "viewfs")
DEFAULT_REGION = "us-east-1"
"""Servers that are compatible with S3 ignore the region, but a request names one."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_ARROW_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
_S3_OPTIONS = frozenset({"endpoint_override", "scheme", "region", "allow_bucket_creation"})
_BEFORE_QUERY = re.compile(r"\?.*")


def is_uri(text: str) -> bool:
    """Returns whether a text is a URI, and not a path."""
    return _SCHEME.match(text) is not None


def open_root(text: str) -> tuple[fs.FileSystem, str]:
    """Returns the file system of a path or URI, and the path in it.

    Args:
        text: A path, or a URI with the scheme file, s3, s3a, gs or hdfs.

    Raises:
        UsageError: Arrow knows no such file system, or an option of the URI is wrong.
    """
    if not is_uri(text):
        return fs.LocalFileSystem(), os.path.abspath(text)
    variables = tuple((name, os.environ.get(name, "")) for name in _S3_VARIABLES)
    system, path = _open_uri(text, variables)
    return system, path


_S3_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION")


@lru_cache(maxsize=32)
def _open_uri(text: str, variables: tuple[tuple[str, str], ...]) -> tuple[fs.FileSystem, str]:
    """Opens a URI. A file system keeps connections, so it is made once for each URI and environment."""
    parts = urlsplit(text)
    scheme = _ARROW_SCHEMES.get(parts.scheme.lower(), parts.scheme.lower())
    if scheme not in SCHEMES:
        raise UsageError(
            f"{text!r} cannot be opened: there is no file system {parts.scheme!r} (use a path or a URI with file, "
            "s3a, gs or hdfs)"
        )
    if scheme in ("s3", "gs") and not parts.netloc:
        raise UsageError(f"{text!r} names no bucket; a URI is {parts.scheme}://BUCKET/FOLDER")
    if parts.password is not None:
        raise UsageError(
            "a URI must not have a password, because URIs are stored and printed; use environment variables "
            "such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    try:
        if scheme == "s3":
            return _open_s3(text, dict(variables)), (parts.netloc + parts.path).rstrip("/")
        uri = scheme + text[len(parts.scheme) :]
        if scheme == "gs" and "retry_limit_seconds" not in parts.query:
            mark = "&" if parts.query else "?"
            uri += f"{mark}retry_limit_seconds={CONNECT_TIMEOUT_S * ATTEMPTS_MAX:g}"
        system, path = fs.FileSystem.from_uri(uri)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UsageError(f"{text!r} cannot be opened: {first_line(error)}") from None
    return system, path.rstrip("/") or "/"


def _open_s3(text: str, variables: Mapping[str, str]) -> fs.FileSystem:
    options = dict(parse_qsl(urlsplit(text).query, keep_blank_values=True))
    for name in options:
        if name not in _S3_OPTIONS:
            known = ", ".join(sorted(_S3_OPTIONS))
            raise UsageError(f"{text!r} has an unknown option {name!r} (known: {known})")
    endpoint = variables["AWS_ENDPOINT_URL_S3"] or variables["AWS_ENDPOINT_URL"]
    if endpoint and "endpoint_override" not in options:
        scheme, _, place = endpoint.rstrip("/").rpartition("://")
        options["endpoint_override"] = place
        options.setdefault("scheme", scheme or "https")
    region = options.get("region") or variables["AWS_REGION"] or variables["AWS_DEFAULT_REGION"]
    if not region and "endpoint_override" in options:
        region = DEFAULT_REGION
    return fs.S3FileSystem(
        region=region or None,
        scheme=options.get("scheme"),
        endpoint_override=options.get("endpoint_override"),
        allow_bucket_creation=options.get("allow_bucket_creation") == "true",
        connect_timeout=CONNECT_TIMEOUT_S,
        request_timeout=REQUEST_TIMEOUT_S,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS_MAX),
    )


def child(text: str, *parts: str) -> str:
    """Returns a path or URI below another one."""
    query = _BEFORE_QUERY.search(text) if is_uri(text) else None
    base = text[: query.start()] if query else text
    return "/".join((base.rstrip("/"), *parts)) + (query.group() if query else "")


def first_line(error: BaseException) -> str:
    """Returns the readable part of an error of Arrow, whose messages can have many lines."""
    text = str(error).strip().partition("\n")[0]
    return text or type(error).__name__


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file at a URI, for readers that otherwise get a `pathlib.Path`."""

    uri: str

    def __str__(self) -> str:
        return self.uri

    def open(self, mode: str = "rb") -> Any:
        """Opens it for reading.

        Raises:
            OSError: It does not exist or cannot be reached.
        """
        assert mode == "rb"
        system, path = open_root(self.uri)
        return system.open_input_file(path)


def located(text: str) -> Path | RemoteFile:
    """Returns the file that a path or URI names."""
    return RemoteFile(text) if is_uri(text) else Path(text)


def parquet_file(place: Path | RemoteFile, **options: Any) -> Any:
    """Opens a Parquet file at a path or URI; a context manager.

    Args:
        place: Where it is.
        options: See `pyarrow.parquet.ParquetFile`.

    Raises:
        OSError, pyarrow.ArrowException: It cannot be read.
    """
    if isinstance(place, RemoteFile):
        try:
            system, path = open_root(place.uri)
        except UsageError as error:
            raise OSError(str(error)) from None
        # Only the columns that are read travel, in few requests.
        return pq.ParquetFile(path, filesystem=system, pre_buffer=True, **options)
    return pq.ParquetFile(place, **options)
