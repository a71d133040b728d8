"""nftables without a process per command.

The library is called in this process, which takes about a millisecond per transaction. Where it is missing or has
no JSON support, the `nft` program is used, which is slower.
"""

import contextlib
import ctypes
import json
import shutil
import subprocess
from typing import Any, Protocol

from nemesis.agent.packets.nft_rules import TABLE_PREFIX, NetworkError

LIBRARIES = ("libnftables.so.1",)
_JSON = 1 << 4
_PROGRAM_LIMIT_S = 20.0


class Nft(Protocol):
    """Runs nftables commands."""

    @property
    def name(self) -> str:
        """How the commands are run."""
        ...

    def run(self, commands: str) -> str:
        """Runs commands in one transaction and returns what they print, as JSON.

        Raises:
            NetworkError: The kernel refused.
        """
        ...


class NftLibrary:
    """libnftables, in this process and this process's network namespace.

    Raises:
        OSError: The library is not installed.
    """

    name = "libnftables"

    def __init__(self) -> None:
        library = _load()
        library.nft_ctx_new.restype = ctypes.c_void_p
        library.nft_ctx_new.argtypes = [ctypes.c_uint32]
        for function in ("nft_ctx_buffer_output", "nft_ctx_buffer_error"):
            getattr(library, function).argtypes = [ctypes.c_void_p]
        library.nft_ctx_output_set_flags.argtypes = [ctypes.c_void_p, ctypes.c_uint]
        library.nft_ctx_output_set_flags.restype = None
        library.nft_run_cmd_from_buffer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
        for function in ("nft_ctx_get_output_buffer", "nft_ctx_get_error_buffer"):
            getattr(library, function).argtypes = [ctypes.c_void_p]
            getattr(library, function).restype = ctypes.c_char_p
        self._library = library
        self._context = library.nft_ctx_new(0)
        if not self._context:
            raise OSError("libnftables gives no context")
        library.nft_ctx_buffer_output(self._context)
        library.nft_ctx_buffer_error(self._context)
        library.nft_ctx_output_set_flags(self._context, _JSON)

    def run(self, commands: str) -> str:
        """Runs commands; see `Nft`."""
        failed = self._library.nft_run_cmd_from_buffer(self._context, commands.encode("ascii"))
        output = self._library.nft_ctx_get_output_buffer(self._context) or b""
        errors = self._library.nft_ctx_get_error_buffer(self._context) or b""
        if failed:
            raise NetworkError(_reason(errors.decode(errors="replace")))
        return str(output.decode(errors="replace"))


class NftProgram:
    """The program `nft`, started for each command.

    Raises:
        OSError: It is not installed.
    """

    name = "nft"

    def __init__(self) -> None:
        path = shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/sbin")
        if path is None:
            raise OSError("neither libnftables.so.1 nor nft is installed")
        self._path = path

    def run(self, commands: str) -> str:
        """Runs commands; see `Nft`."""
        # Some versions print no JSON for commands that they read from a file.
        is_question = commands.startswith("list ")
        done = subprocess.run(
            [self._path, *(["-j", commands] if is_question else ["-f", "-"])],
            input="" if is_question else commands,
            capture_output=True,
            text=True,
            check=False,
            timeout=_PROGRAM_LIMIT_S,
        )
        if done.returncode != 0:
            raise NetworkError(_reason(done.stderr))
        return done.stdout


def _load() -> Any:
    for name in LIBRARIES:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name)
    raise OSError("libnftables.so.1 is not installed")


def open_nft() -> Nft:
    """Returns the fastest access to nftables that works here.

    Raises:
        NetworkError: nftables cannot be used here.
    """
    why = ""
    for kind in (NftLibrary, NftProgram):
        try:
            nft: Nft = kind()
            json.loads(nft.run("list tables"))
        except (OSError, ValueError, NetworkError) as error:
            why = str(error)
            continue
        return nft
    raise NetworkError(f"nftables cannot be used here ({why}); install nftables and be root")


def our_tables(nft: Nft) -> list[str]:
    """Returns the names of the tables that any run made in this namespace."""
    listing = json.loads(nft.run("list tables"))
    return sorted(
        item["table"]["name"]
        for item in listing["nftables"]
        if item.get("table", {}).get("family") == "inet"
        and item["table"]["name"].startswith(TABLE_PREFIX)
    )


def list_table(nft: Nft, name: str) -> dict[str, Any]:
    """Returns the content of a table.

    Raises:
        NetworkError: There is no such table.
    """
    listing: dict[str, Any] = json.loads(nft.run(f"list table inet {name}"))
    return listing


def _reason(text: str) -> str:
    first = next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
    return f"nftables refused: {first}"
