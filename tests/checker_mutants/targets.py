"""Which modules are mutated, and which tests judge the mutants."""

from pathlib import Path

from tests.checker_mutants.mutants import ROOT

PACKAGES = ("checkers/kernels", "checkers/models")
MODULES = ("checkers/expectations.py",)
"""Beside all modules of the packages."""

NOT_DECIDING = frozenset({"checkers/models/picture.py"})
"""What draws pictures decides nothing."""

DEFINITIONS = (
    "tests/checker_mutants/test_samples.py",
    "tests/property/test_findings_by_definition.py",
    "tests/property/test_elections_by_definition.py",
    "tests/property/test_unavoidable_elections.py",
    "tests/property/test_replica_logs_by_replay.py",
    "tests/property/test_replicas_by_definition.py",
    "tests/property/test_group_facts_by_definition.py",
    "tests/property/test_sessions_by_definition.py",
    "tests/property/test_cut_histories.py",
    "tests/property/test_cut_partitions.py",
    "tests/property/test_claims_by_definition.py",
    "tests/property/test_group_histories.py",
    "tests/spark/test_huge.py",
)
"""Compare every column that a kernel computes with a second, slow computation, or verdicts with exhaustive search;
so they kill most."""
TESTS = (
    "tests/anomalies",
    "tests/unit/checkers",
    *DEFINITIONS,
    "tests/property/test_linearizability_laws.py",
    "tests/property/test_election_runs.py",
    "tests/property/test_corrupted_runs.py",
)
"""Of the comparisons with exhaustive search, `test_samples.py` has short parts: the rest takes long."""

_OF_PIECES = ("test_huge", "test_cut_histories", "test_cut_partitions")
_OF_ELECTIONS = (
    "test_elections_of_a_partition",
    "test_elections_at_borders",
    "test_elections_and_cuts",
    "test_elections_by_definition",
    "test_elections_and_lone_commits",
    "test_gaps_in_the_record",
    "test_unclean_elections",
    "test_unavoidable_elections",
    "test_election_excuses",
)
_OF_GROUPS = (
    "test_group_histories",
    "test_group_anomalies",
    "test_group_owners",
    "test_group_coordinators",
)
BESIDE_NAMES = {
    "buckets": _OF_PIECES,
    "cut_measures": (*_OF_PIECES, "test_measures"),
    "cut_partition": _OF_PIECES,
    "monoid": _OF_PIECES,
    "remainder": _OF_PIECES,
    "slices": _OF_PIECES,
    "suspects": _OF_PIECES,
    "checker": (
        "test_offset_queries",
        "test_recorded_transactions",
        "test_transaction_events",
        "test_counted_transactions",
    ),
    "history": ("test_reading_of_histories",),
    "log_checkers": ("test_combined_options",),
    "divergence": ("test_replica_anomalies", "test_replicas_by_definition"),
    "replaced": ("test_claims_by_definition", "test_compacted_logs"),
    "replicas": ("test_replica_anomalies",),
    "elections": _OF_ELECTIONS,
    "fates": _OF_ELECTIONS,
    "metadata_gaps": _OF_ELECTIONS,
    "destroyed": ("test_leaders_that_restart", *_OF_ELECTIONS),
    "led_on": ("test_leaders_that_restart", *_OF_ELECTIONS),
    "unclean_elections": _OF_ELECTIONS,
    "log_contents": ("test_logs_of_replicas", "test_claims_by_logs", *_OF_ELECTIONS),
    "leader_terms": ("test_logs_of_replicas", "test_claims_by_logs", *_OF_ELECTIONS),
    "replica_logs": ("test_logs_of_replicas", "test_claims_by_logs", *_OF_ELECTIONS),
    "replica_reports": ("test_replica_logs_at_borders", *_OF_ELECTIONS),
    "consumer_group": (*_OF_GROUPS, "test_group_facts_by_definition"),
    "coordinators": _OF_GROUPS,
    "group_commits": _OF_GROUPS,
    "producer_sessions": ("test_producer_anomalies", "test_sessions_by_definition"),
}
"""Tests about a module whose names do not contain its name."""

MARKS = "not spark and not long and not wire and not containers"

WARM_UP = (
    "tests/property/test_corrupted_runs.py::test_the_runs_are_valid_and_one_has_an_excused_loss"
)
"""Runs before anything is mutated: its fixtures record runs, which every corruption needs."""


def modules() -> list[str]:
    """Returns the paths of all modules that are mutated, relative to the root of the repository."""
    found = [
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
    ]
    return [module for module in (*found, *MODULES) if module not in NOT_DECIDING]


def is_about(test: str, module: str) -> bool:
    """Whether the file of a test is about a module."""
    file, name = Path(test.partition("::")[0]).stem, Path(module).stem
    return name in file or file in BESIDE_NAMES.get(name, ())


def is_of(module: str, wanted: str) -> bool:
    """Whether a path is meant by an argument: the path, a folder, or the name of the file."""
    path = Path(module)
    return module == wanted or wanted in (path.stem, path.name) or module.startswith(f"{wanted}/")
