"""Every Spark job by the name that the command line uses."""

from collections.abc import Callable, Mapping
from typing import Any

from checkers.jobs.check import check_job
from checkers.jobs.distribute import distribute_job
from checkers.jobs.trends import trends_job

Job = Callable[[Any, Mapping[str, Any]], dict[str, Any]]
"""Takes (Spark context, arguments) and returns a JSON-compatible result."""

JOBS: dict[str, Job] = {
    "check": check_job,
    "distribute": distribute_job,
    "trends": trends_job,
}
