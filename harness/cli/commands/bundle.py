"""`laststand bundle`: packs code and packages for the workers of a cluster."""

import argparse
import shutil
from pathlib import Path

from harness import exit_codes
from harness.cli.options import Subcommands, add_command, add_command_family
from harness.cli.output import print_json
from harness.errors import UsageError


def add_parser(commands: Subcommands) -> None:
    """Adds the command and its subcommands."""
    actions = add_command_family(
        commands,
        "bundle",
        "pack code and packages for the workers of a cluster",
        "Pack code and packages for the workers of a cluster.",
    )
    spark = add_command(
        actions,
        "spark",
        bundle_spark,
        "pack what Spark workers need; --spark-master ships the same archive by itself",
        stores_runs=False,
    )
    spark.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="write the archive to this file (.zip) (default: the cache directory)",
    )


def bundle_spark(options: argparse.Namespace) -> int:
    """Packs what Spark workers need, and prints the path of the archive.

    Raises:
        UsageError: The file cannot be written.
    """
    from checkers.spark_bundle import FOLDER, describe, worker_bundle

    output: Path | None = options.output
    if output is not None and output.suffix != ".zip":
        raise UsageError(
            f"{output} must end with .zip, because Spark unpacks archives by their suffix"
        )
    path = worker_bundle()
    if output is not None:
        try:
            shutil.copyfile(path, output)
        except OSError as error:
            raise UsageError(f"{output} cannot be written: {error.strerror}") from None
        path = output
    if options.json:
        print_json(
            {"bundle": str(path), "size_bytes": path.stat().st_size, "folder": FOLDER, **describe()}
        )
    else:
        print(path)
    return exit_codes.VALID
