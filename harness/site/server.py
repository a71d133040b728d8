"""The pages of a run store over HTTP, for the user of this machine only.

The server listens on the loopback address, and every request needs a token: the address that `laststand serve`
prints has it, and a cookie keeps it. Requests under another host name are refused, so that no page of another site
can read runs through a name that resolves to this machine. Nothing can be changed through it.
"""

import secrets
import socket
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from starlette.routing import Route
from starlette.types import ASGIApp

from harness.errors import UsageError
from harness.site.content import SiteContent

LOOPBACK = "127.0.0.1"
TOKEN = "token"
"""Name of the query parameter."""

SHUTDOWN_LIMIT_S = 2
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_NEEDS_TOKEN = "Open the address that `laststand serve` printed: it has the token.\n"


class _TokenGuard(BaseHTTPMiddleware):
    """Passes only requests with the token, in the query or in the cookie.

    Args:
        app: What handles these requests.
        token: The token.
        cookie: Name of the cookie; it has the port, because browsers send cookies to all ports of a host.
    """

    def __init__(self, app: ASGIApp, token: str, cookie: str) -> None:
        super().__init__(app)
        self._token = token
        self._cookie = cookie

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        """Handles one request."""
        if self._is_right(request.query_params.get(TOKEN)):
            # The token leaves the address bar, and with it the history of the browser.
            response: Response = RedirectResponse(request.url.path, status_code=303)
            response.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
        elif self._is_right(request.cookies.get(self._cookie)):
            response = await call_next(request)
        else:
            response = PlainTextResponse(_NEEDS_TOKEN, status_code=403)
        response.headers.update(_HEADERS)
        return response

    def _is_right(self, given: str | None) -> bool:
        return given is not None and secrets.compare_digest(given.encode(), self._token.encode())


def make_app(content: SiteContent, token: str, cookie: str = "laststand") -> Starlette:
    """Returns the application: the index, and the pages of runs and campaigns."""

    async def index(_: Request) -> Response:
        return HTMLResponse(await run_in_threadpool(content.index))

    async def page(request: Request) -> Response:
        path = await run_in_threadpool(page_path, content, request.path_params["path"])
        if path is None:
            return PlainTextResponse("There is no such page.\n", status_code=404)
        return FileResponse(path, media_type="text/html; charset=utf-8")

    return Starlette(
        routes=[Route("/", index), Route("/index.html", index), Route("/{path:path}", page)],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=[LOOPBACK, "localhost"]),
            Middleware(_TokenGuard, token=token, cookie=cookie),
        ],
    )


def page_path(content: SiteContent, address: str) -> Path | None:
    """Returns the file of a page; None unless it is a page below the store, whatever the address contains."""
    root = content.store.root.resolve()
    try:
        path = (root / address).resolve()
        is_page = path.is_relative_to(root) and path.suffix == ".html" and path.is_file()
    except (OSError, ValueError):  # too long, or with a null byte
        return None
    return path if is_page else None


def open_socket(port: int) -> socket.socket:
    """Returns a socket that listens on the loopback address; port 0 is any free one.

    Raises:
        UsageError: The port cannot be used.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise UsageError(
            f"port {port} cannot be used: {error}; choose another with --port"
        ) from None
    return listener


def serve(app: Starlette, listener: socket.socket) -> None:
    """Serves until SIGINT or SIGTERM, which both are the normal end."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_LIMIT_S,
    )
    try:
        uvicorn.Server(config).run(sockets=[listener])
    except KeyboardInterrupt:  # raised again by uvicorn after the end
        pass
    finally:
        listener.close()
