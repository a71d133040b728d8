"""Lets `python -m harness.cli` do what `laststand` does."""

import sys

from harness.cli.main import main

sys.exit(main())
