from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One Spark context for all tests of this process."""
    from checkers.spark import spark_context

    directory = str(tmp_path_factory.mktemp("spark"))
    context = spark_context("tests", conf={"spark.local.dir": directory})
    yield context
    context.stop()
    # The JVM would end with this process; ending it here leaves no open socket to warn about.
    gateway = context._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


@pytest.fixture(scope="session")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded run of the last replica standing, in which records are lost."""
    from datetime import UTC, datetime

    from harness.runs.record import record_run
    from harness.runs.scripted import scenario_experiment
    from harness.scenarios import find_scenario
    from results.store import RunStore

    store = RunStore(tmp_path_factory.mktemp("runs"))
    experiment = scenario_experiment(find_scenario("last-replica-standing"), "kafka-4.0")
    directory, _ = record_run(experiment, 1, store, now=datetime(2026, 1, 1, tzinfo=UTC))
    return directory
