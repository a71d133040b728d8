"""The child process of Spark jobs: one JSON request on standard input, one answer on standard output."""

import json
import sys
import traceback

from checkers.jobs.registry import JOBS
from checkers.spark import ANSWER_PREFIX, spark_session


def main() -> int:
    """Runs one job; the failure of a job is an answer too."""
    request = json.load(sys.stdin)
    arguments = request["arguments"]
    try:
        session = spark_session(
            f"laststand {request['job']}",
            master=arguments.get("master", "local[2]"),
            conf=arguments.get("conf", {}),
        )
        answer = JOBS[request["job"]](session, arguments)
    except Exception as error:  # the edge: the parent turns it into one sentence
        traceback.print_exc()
        answer = {"failure": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
    print(ANSWER_PREFIX + json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
