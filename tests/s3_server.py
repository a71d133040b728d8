"""An S3-compatible server on this machine: moto, from the package registry, as a process of its own.

moto needs older versions of packages than this project, so it has an environment of its own.
`python -m tests.s3_server install` makes it; tests that need the server are skipped without it.
"""

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ENVIRONMENT = Path(__file__).parents[1] / ".venv" / "s3-server"
REQUIREMENTS = ("moto[s3]>=5.1,<6", "flask>=3,<4", "flask-cors>=6,<7")
KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
BUCKET = "laststand"
START_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running server.

    Attributes:
        endpoint: Its URL.
        variables: The environment variables with which it is reached.
    """

    endpoint: str
    variables: dict[str, str]

    def uri(self, folder: str) -> str:
        """Returns the URI of a folder in its bucket."""
        return f"s3a://{BUCKET}/{folder}"


def server_python() -> Path:
    """Returns the interpreter that has moto; skips the test if there is none."""
    configured = os.environ.get("LASTSTAND_S3_SERVER")
    python = Path(configured) if configured else ENVIRONMENT / "bin" / "python"
    if not python.exists():
        pytest.skip("no S3-compatible server; `python -m tests.s3_server install` installs one")
    return python


@contextlib.contextmanager
def s3_server(host: str = "127.0.0.1", log: Path | None = None) -> Iterator[S3Server]:
    """Runs a server with one empty bucket."""
    python = server_python()
    with socket.socket() as free:
        free.bind((host, 0))
        port = free.getsockname()[1]
    with (log or Path(os.devnull)).open("wb") as output:
        process = subprocess.Popen(
            [python, "-m", "moto.server", "-H", host, "-p", str(port)],
            stdout=output,
            stderr=output,
            env={"PATH": os.environ.get("PATH", ""), **KEYS},
        )
    endpoint = f"http://{host}:{port}"
    try:
        _wait(process, endpoint)
        request = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")
        request.add_header(
            "Authorization", "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/x"
        )
        with urllib.request.urlopen(request):
            pass
        yield S3Server(endpoint, {**KEYS, "AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "us-east-1"})
    finally:
        process.terminate()
        process.wait()


def _wait(process: subprocess.Popen[bytes], endpoint: str) -> None:
    deadline_s = time.monotonic() + START_LIMIT_S
    while True:
        assert process.poll() is None, "the S3 server ended"
        assert time.monotonic() < deadline_s, "the S3 server does not start"
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            urllib.request.urlopen(f"{endpoint}/moto-api/", timeout=5).close()
            return
        time.sleep(0.1)


def install() -> int:
    """Makes the environment of the server; returns an exit code."""
    pip = [str(ENVIRONMENT / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    for command in (
        [sys.executable, "-m", "venv", str(ENVIRONMENT)],
        [*pip, "install", "--quiet", *REQUIREMENTS],
    ):
        code = subprocess.run(command, check=False).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    if sys.argv[1:] != ["install"]:
        sys.exit("usage: python -m tests.s3_server install")
    sys.exit(install())
