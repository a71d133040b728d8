"""Kafka's messages and codecs. The only place that imports `kio`."""

import sys

if "hypothesis" not in sys.modules:
    # Wherever hypothesis is installed, kio imports it and registers strategies, which takes a third of a node's
    # start. Only tests use them, and pytest has imported hypothesis before this line.
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        import kio.static.primitive  # noqa: F401
    finally:
        del sys.modules["hypothesis"]
