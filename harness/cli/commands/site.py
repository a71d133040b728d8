"""`laststand site`: writes the stored runs, campaigns and nights as static pages."""

import argparse
from pathlib import Path

from harness import exit_codes
from harness.cli.options import Subcommands, add_command
from harness.cli.output import print_json
from harness.cli.runs import open_store


def add_parser(commands: Subcommands) -> None:
    """Adds the command."""
    parser = add_command(
        commands, "site", site, "write the stored runs, campaigns and nights as a web site"
    )
    parser.add_argument(
        "directory",
        type=Path,
        metavar="DIR",
        help="write the pages here: a new or empty directory, or an earlier site, which is replaced",
    )


def site(options: argparse.Namespace) -> int:
    """Writes the pages and prints the path of the index."""
    from harness.site.content import SiteContent
    from harness.site.static import write_site

    content = SiteContent(open_store(options))
    index = write_site(content, options.directory)
    if options.json:
        print_json({"index": str(index), "pages": 1 + len(content.pages())})
    else:
        print(index)
    return exit_codes.VALID
