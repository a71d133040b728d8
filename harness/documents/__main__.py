"""`python -m harness.documents` writes the generated documents; `--check` only names the stale ones."""

import argparse
import sys
from collections.abc import Sequence

from harness.documents.registry import stale_documents, write_documents


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 1 if `--check` finds a stale document."""
    parser = argparse.ArgumentParser(
        prog="python -m harness.documents", description="Writes the generated documents."
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 and name stale documents"
    )
    if parser.parse_args(arguments).check:
        stale = stale_documents()
        for path in stale:
            print(f"{path} is stale; run `make docs`", file=sys.stderr)
        return 1 if stale else 0
    for path in write_documents():
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
