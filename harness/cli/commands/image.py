"""`laststand image`: builds the container image of a node."""

import argparse

from harness import exit_codes
from harness.cli.options import Subcommands, add_command, add_command_family
from harness.cli.output import print_json
from harness.cli.progress import StandardErrorProgress
from harness.errors import UsageError


def add_parser(commands: Subcommands) -> None:
    """Adds the command and its subcommands."""
    actions = add_command_family(
        commands,
        "image",
        "build the container image of a node",
        "Manage the container image of a node.",
    )
    build = add_command(
        actions,
        "build",
        build_image,
        "build the image from a base image with this Python version",
        stores_runs=False,
    )
    build.add_argument(
        "--base", metavar="IMAGE", help="start from this image (default: python:X.Y-slim)"
    )
    build.add_argument(
        "--from-debootstrap",
        action="store_true",
        help="make the base image from Debian packages; needs no container registry",
    )


def build_image(options: argparse.Namespace) -> int:
    """Builds the image of a node."""
    from harness.environments.hosts import image
    from harness.environments.hosts.docker import connect

    if options.base and options.from_debootstrap:
        raise UsageError("--base and --from-debootstrap exclude each other; use one of them")
    with StandardErrorProgress(quiet=options.quiet) as progress:
        engine = connect()
        try:
            base = options.base or image.DEFAULT_BASE
            if options.from_debootstrap:
                base = image.debootstrap_base(engine, progress.message)
            name = image.build(engine, base, progress.message)
        finally:
            engine.close()
    if options.json:
        print_json({"image": name, "base": base})
    else:
        print(name)
    return exit_codes.VALID
