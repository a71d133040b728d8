"""The command lines of `laststand image` and `laststand reset`; `world_commands.py` carries them out."""

from typing import Any


def add_parsers(commands: Any, make: Any) -> None:
    """Adds the commands about real worlds to a command line."""
    image = commands.add_parser(
        "image",
        help="the container image of a node: build",
        description="The container image of a node.",
        allow_abbrev=False,
    )
    image.set_defaults(parser=image)
    actions = image.add_subparsers(metavar="ACTION", parser_class=type(image))
    build = make(actions, "build", "build the image from a base image with the harness's Python")
    build.set_defaults(command="image_build")
    build.add_argument("--base", metavar="IMAGE", help="(default: python:X.Y-slim)")
    build.add_argument(
        "--from-debootstrap",
        action="store_true",
        help="make the base from Debian's packages; needs no container registry",
    )
    reset = make(commands, "reset", "remove whatever runs left behind whose harness is dead")
    reset.add_argument("--hosts", metavar="FILE", help="also on the hosts of this TOML file")
    reset.add_argument(
        "--all", action="store_true", help="also what belongs to runs that are still going on"
    )
