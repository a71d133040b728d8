"""`laststand serve`: shows the stored runs, campaigns and nights in the browser of this machine."""

import argparse
import secrets
import sys

from harness import exit_codes
from harness.cli.options import Subcommands, add_command, port_number
from harness.cli.output import print_json
from harness.cli.runs import open_store


def add_parser(commands: Subcommands) -> None:
    """Adds the command."""
    parser = add_command(
        commands,
        "serve",
        serve,
        "serve the stored runs, campaigns and nights to the browsers of this machine, until interrupted",
    )
    parser.add_argument(
        "--port",
        type=port_number,
        default=0,
        metavar="PORT",
        help="listen on this port of 127.0.0.1 (default: a free one)",
    )


def serve(options: argparse.Namespace) -> int:
    """Prints the address with its token, then serves until SIGINT or SIGTERM."""
    from harness.site.content import SiteContent
    from harness.site.server import LOOPBACK, TOKEN, make_app, open_socket
    from harness.site.server import serve as serve_until_interrupted

    content = SiteContent(open_store(options))
    token = secrets.token_urlsafe(24)
    listener = open_socket(options.port)
    port = listener.getsockname()[1]
    url = f"http://{LOOPBACK}:{port}/?{TOKEN}={token}"
    if options.json:
        # The one object on standard output comes at the end; the address is needed now.
        print(f"laststand: serving at {url}", file=sys.stderr, flush=True)
        print_json({"url": url})
    else:
        print(url, flush=True)
    serve_until_interrupted(make_app(content, token, f"laststand-{port}"), listener)
    return exit_codes.VALID
