"""The files below a URI: listed, read, written and removed, with names relative to it.

Object stores have no directories and no renaming. An object appears when all of it was written; several objects
never appear together. Of several, a writer therefore writes the one that makes the others count last.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import pyarrow as pa
from pyarrow import fs

from harness.errors import HarnessFailure, HistoryError
from harness.history.filesystems import child, first_line, open_root

CHUNK_BYTES = 8 << 20
_WITHOUT_DIRECTORIES = ("s3", "gcs")


class RemoteFiles:
    """The files below a URI.

    Args:
        uri: Where.

    Raises:
        UsageError: Arrow knows no such file system.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._system, self._root = open_root(uri)

    def names(self, folder: str = "") -> dict[str, bool]:
        """Returns what is directly in a folder, and whether each is a folder itself; nothing if it does not exist.

        Raises:
            HarnessFailure: It cannot be listed.
        """
        selector = fs.FileSelector(self._path(folder), allow_not_found=True)
        return {
            info.base_name: info.type == fs.FileType.Directory for info in self._listed(selector)
        }

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Returns the sizes of all files below a folder by their names relative to it.

        Raises:
            HarnessFailure: It cannot be listed.
        """
        base = self._path(folder)
        selector = fs.FileSelector(base, recursive=True, allow_not_found=True)
        return {
            info.path[len(base) :].lstrip("/"): info.size
            for info in self._listed(selector)
            if info.type == fs.FileType.File
        }

    def read(self, name: str) -> bytes | None:
        """Returns the content of a file, None if there is none.

        Raises:
            HarnessFailure: It cannot be read.
        """
        try:
            with self._system.open_input_stream(self._path(name)) as file:
                content: bytes = file.read()
        except FileNotFoundError:
            return None
        except (OSError, pa.ArrowException) as error:
            raise self._failure(name, "read", error) from None
        return content

    def write(self, name: str, content: bytes) -> None:
        """Writes a file.

        Raises:
            HarnessFailure: It cannot be written.
        """
        try:
            self._make_parent(name)
            with self._system.open_output_stream(self._path(name)) as file:
                file.write(content)
        except (OSError, pa.ArrowException) as error:
            raise self._failure(name, "written", error) from None

    def upload(self, source: Path, name: str) -> None:
        """Copies a file of this machine.

        Raises:
            FileNotFoundError: There is no such file on this machine.
            HarnessFailure: It cannot be written.
        """
        with source.open("rb") as content:
            try:
                self._make_parent(name)
                with self._system.open_output_stream(self._path(name)) as file:
                    shutil.copyfileobj(content, file, CHUNK_BYTES)
            except (OSError, pa.ArrowException) as error:
                raise self._failure(name, "written", error) from None

    def download(self, name: str, target: Path) -> None:
        """Copies a file to this machine, where it appears when it is complete.

        Raises:
            HistoryError: There is no such file.
            HarnessFailure: It cannot be read.
        """
        partial = target.with_name(f".{target.name}.partial")
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            content = self._system.open_input_stream(self._path(name))
            with content, partial.open("wb") as file:
                shutil.copyfileobj(content, file, CHUNK_BYTES)
        except FileNotFoundError:
            raise HistoryError(f"{child(self.uri, name)} is missing") from None
        except (OSError, pa.ArrowException) as error:
            partial.unlink(missing_ok=True)
            raise self._failure(name, "read", error) from None
        partial.replace(target)

    def remove(self, name: str) -> None:
        """Removes a file, or a folder with everything in it; what is gone already is no error.

        Raises:
            HarnessFailure: It cannot be removed.
        """
        path = self._path(name)
        try:
            kind = self._system.get_file_info(path).type
            if kind == fs.FileType.Directory:
                self._system.delete_dir(path)
            elif kind == fs.FileType.File:
                self._system.delete_file(path)
        except FileNotFoundError:
            pass
        except (OSError, pa.ArrowException) as error:
            raise self._failure(name, "removed", error) from None

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}" if name else self._root

    def _listed(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        try:
            found: list[fs.FileInfo] = self._system.get_file_info(selector)
        except (OSError, pa.ArrowException) as error:
            raise self._failure("", "listed", error) from None
        return found

    def _make_parent(self, name: str) -> None:
        if self._system.type_name not in _WITHOUT_DIRECTORIES:
            self._system.create_dir(str(PurePosixPath(self._path(name)).parent), recursive=True)

    def _failure(self, name: str, what: str, error: Exception) -> HarnessFailure:
        reason = first_line(error)
        return HarnessFailure(
            f"{child(self.uri, name) if name else self.uri} cannot be {what}: {reason}{_advice(reason)}"
        )


_ADVICE: Mapping[str, str] = {
    "ACCESS_DENIED": "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "INVALID_ACCESS_KEY_ID": "check AWS_ACCESS_KEY_ID",
    "SIGNATURE_DOES_NOT_MATCH": "check AWS_SECRET_ACCESS_KEY",
    "NO_SUCH_BUCKET": "make the bucket, or check its name",
    "NETWORK_CONNECTION": "check that the server runs, and AWS_ENDPOINT_URL",
    "credentials": "set the credentials of this file system",
}


def _advice(reason: str) -> str:
    found = next((advice for word, advice in _ADVICE.items() if word in reason), "")
    return f" ({found})" if found else ""
