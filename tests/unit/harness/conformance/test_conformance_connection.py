"""One request on a connection of its own: a response, a closed connection, or silence."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from harness.conformance.connection import CLOSED, RESPONSE, SILENT, exchange


@contextmanager
def server(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that serves one connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(100)
                serve(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        thread.join()


def test_a_response_is_returned_without_its_size():
    def serve(connection: socket.socket) -> None:
        for part in (b"\0\0", b"\0\3a", b"bc"):
            connection.sendall(part)

    with server(serve) as address:
        reply = exchange(address, b"x")
    assert (reply.outcome, reply.body) == (RESPONSE, b"abc")


@pytest.mark.parametrize("sent", [b"", b"\0\0", b"\0\0\0\5ab"])
def test_a_connection_that_is_closed_early_is_an_outcome(sent):
    with server(lambda connection: connection.sendall(sent)) as address:
        assert exchange(address, b"x").outcome == CLOSED


def test_silence_is_an_outcome_and_bounded():
    done = threading.Event()
    with server(lambda connection: done.wait(30) and None) as address:
        assert exchange(address, b"x", limit_s=0.05).outcome == SILENT
        done.set()


def test_a_node_that_is_down_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(OSError, match="refused"):
        exchange(f"127.0.0.1:{port}", b"x")
