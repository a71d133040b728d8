"""`python -m system_under_test --config node.toml` runs one node, without the harness."""

import gc
import sys

if __name__ == "__main__":
    gc.disable()  # an import leaves no garbage, but makes enough objects to start several collections
    from system_under_test.process import main

    gc.freeze()
    gc.enable()
    sys.exit(main())
