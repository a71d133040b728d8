"""`laststand gc`: removes old nights and runs."""

import argparse
from typing import TYPE_CHECKING

from harness import exit_codes
from harness.cli.options import Subcommands, add_command, positive_number
from harness.cli.output import print_json
from harness.cli.runs import open_store
from results.text import plain

if TYPE_CHECKING:
    from harness.campaigns.prune import Pruning

KEEP_NIGHTS = 30


def add_parser(commands: Subcommands) -> None:
    """Adds the command."""
    parser = add_command(
        commands, "gc", gc, "remove nights and runs that are older than the last nights"
    )
    parser.add_argument(
        "--keep-nights",
        type=positive_number,
        default=KEEP_NIGHTS,
        metavar="N",
        help="keep the last N nights, and the runs since the first of them (default: %(default)s)",
    )
    parser.add_argument("--keep-failing", action="store_true", help="keep failing runs of any age")
    parser.add_argument(
        "--dry-run", action="store_true", help="remove nothing; print what would be removed"
    )


def gc(options: argparse.Namespace) -> int:
    """Removes old nights and runs.

    Raises:
        HarnessFailure: Something could not be removed; the rest was.
    """
    pruning = _pruned(options)
    size_bytes = sum(removal.size_bytes for removal in pruning.removals)
    if options.json:
        print_json(
            {
                "dry_run": options.dry_run,
                "removed": [
                    {"path": str(one.path), "kind": one.kind, "size_bytes": one.size_bytes}
                    for one in pruning.removals
                ],
                "size_bytes": size_bytes,
                "kept_failing": [str(path) for path in pruning.kept_failing],
                "in_progress": [str(path) for path in pruning.in_progress],
                "unknown": [str(path) for one in pruning.removals for path in one.unknown],
            }
        )
        return exit_codes.VALID
    word = "would remove" if options.dry_run else "removed"
    for removal in pruning.removals:
        print(plain(f"{word} {removal.kind} {removal.path} ({_size_text(removal.size_bytes)})"))
        for path in removal.unknown:
            print(plain(f"  kept {path}, which laststand did not make"))
    for path in pruning.in_progress:
        print(plain(f"kept {path}, which another process is running"))
    if pruning.kept_failing:
        print(f"kept {len(pruning.kept_failing)} failing runs")
    print(f"{word} {len(pruning.removals)} nights and runs, {_size_text(size_bytes)}")
    return exit_codes.VALID


def _pruned(options: argparse.Namespace) -> "Pruning":
    """Removes what is old, unless this is a dry run, and returns what it was."""
    from harness.campaigns.prune import plan_pruning, prune
    from harness.campaigns.remote import prune_remote
    from results.remote_store import RemoteStore

    store = open_store(options)
    if isinstance(store, RemoteStore):
        return prune_remote(
            store,
            keep_nights=options.keep_nights,
            keep_failing=options.keep_failing,
            dry_run=options.dry_run,
        )
    pruning = plan_pruning(
        store.root, keep_nights=options.keep_nights, keep_failing=options.keep_failing
    )
    if not options.dry_run:
        prune(pruning)
    return pruning


def _size_text(size_bytes: int) -> str:
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
