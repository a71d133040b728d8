"""The child process of Spark jobs: one JSON request, a line of standard input; one result on standard output."""

import json
import sys
import traceback
from typing import Any

from checkers.jobs.distribute import first_line
from checkers.jobs.registry import JOBS
from checkers.spark import RESULT_PREFIX, spark_context
from harness.errors import HarnessFailure, HistoryError


def main() -> int:
    """Runs one job; a failed job has a result too."""
    # A line, not all of the input: some jobs read their work from the rest.
    request = json.loads(sys.stdin.readline())
    print(RESULT_PREFIX + json.dumps(result_of(request)), flush=True)
    return 0


def result_of(request: dict[str, Any]) -> dict[str, Any]:
    """Returns the job's result, or one sentence that explains why there is none."""
    arguments = request["arguments"]
    try:
        job = JOBS[request["job"]]
        context = spark_context(
            f"laststand {request['job']}",
            master=arguments.get("master", "local[2]"),
            conf=arguments.get("conf", {}),
            large=arguments.get("large", False),
        )
        return job(context, arguments)
    except HistoryError as error:
        return {"history_error": str(error)}
    except HarnessFailure as error:
        return {"failure": str(error)}
    except Exception as error:  # the edge: the parent turns it into one sentence
        traceback.print_exc()
        return {"failure": first_line(error)}


if __name__ == "__main__":
    sys.exit(main())
