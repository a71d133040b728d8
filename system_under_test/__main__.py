"""`python -m system_under_test --config node.toml` runs one node, without the harness."""

import sys

from system_under_test.process import main

if __name__ == "__main__":
    sys.exit(main())
