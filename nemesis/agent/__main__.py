"""`python -m nemesis.agent --run DIR`: serves commands on standard input and output."""

import argparse
import signal
import sys
from pathlib import Path

from nemesis.agent import state
from nemesis.agent.server import Server


def main() -> int:
    """Runs the agent until its input ends."""
    parser = argparse.ArgumentParser(prog="laststand-agent")
    parser.add_argument("--run", type=Path, required=True, help="state directory of the run")
    options = parser.parse_args()
    # An interrupt is handled by the harness, which then closes this process's input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    state.begin_run(options.run)
    Server(options.run, sys.stdin.buffer, sys.stdout.buffer).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
