"""The names of everything in a run directory, and of run directories.

results/runs/<experiment>/<yyyymmddThhmmssZ>-<seed>[-n]/
    experiment.toml   the resolved experiment; a valid input
    replay.json       seed, schedule and code version: what `laststand replay` reads
    run.json          the summary: run, seed, profile, verdict, counts
    verdict.json      the judgement with every anomaly and its witnesses
    summary.md        the same as Markdown, for job summaries
    report.html       the report: one file, no network
    history/          the history (docs/results.md describes its tables)
    shrink.json       of a shrunk run: what it was made from, how much smaller it is, and its cause
    metrics.jsonl     the metrics of real nodes over time
    messages.parquet  the messages that the nodes of a real run recorded
    spark.log         what Spark logged, if it judged the run
    messages.json     the messages around the decisive moment, if `laststand report --messages` was called
    trace.json        the run for Perfetto, if `laststand trace` was called

results/runs/latest   a link to the run that began last; the name `latest` selects the newest finished run
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from harness.errors import UsageError

DEFAULT_ROOT = Path("results/runs")
LATEST = "latest"
STORED_FILE = "stored.json"
RUNNING_FILE = "running.json"

RUN_FILES: dict[str, str] = {
    "experiment.toml": "the resolved experiment, with what the seed drew; a valid input for `laststand run`",
    "replay.json": "seed, schedule and code version: what `laststand replay` reads",
    "run.json": "the summary: run, seed, system and version, profile, verdict, counts, trace hash; under "
    "`drawn` what the seed drew from the space of the experiment; under `coverage` what it reached, if "
    "that was requested; under `recovery`, of a simulated run that recovered too late or not at all, how "
    "long it took and how long the same seed takes without faults; under "
    "`environment` what a real environment reports, with the programs of the client",
    "verdict.json": "the judgement with every anomaly, its rule and its witnesses; `coverage` is what was tested,"
    " and `measures` of its `by_partition` state how many acknowledged records no poll had returned yet (`unseen`,"
    " over time), how late readers were at worst (`worst_lag_ms`), and how long recovery took (`recoveries`: when"
    " a fault was healed, and the times to the next append and poll, in milliseconds)",
    "summary.md": "the verdict and the story in Markdown, for job summaries",
    "report.html": "the report: one file that opens without network",
    "history/": "the tables below; `history.journal` instead while the run lasts or when it died",
    "shrink.json": "of a run that `laststand shrink` made: `of` (the run that was shrunk), `signature` and "
    "`title` of the finding that both show, `before` and `after` (faults, times, clients, partitions, records, "
    "nodes), `runs` (how many trials were needed), `ended` (why the search ended early; empty if nothing "
    "could be made smaller), `cause` (one paragraph)",
    "metrics.jsonl": "of a real run of the reference system: one JSON object whenever metrics of a node "
    "changed, at most one per second and node: `at_ns`, `node`, `values` by series as Prometheus writes them, "
    "`gone` series; or `down` when the node went down",
    "spark.log": "what Spark logged, if a Spark job judged the run",
    "messages.parquet": "of a real run: the messages that its nodes recorded, one row each (table `messages` "
    "below); the metadata of its schema has `remarks`, a JSON list of sentences on what is missing",
    "messages.json": "of a simulated run: the messages around the decisive moment, if `laststand report "
    "--messages` was called: "
    "`begin_ns`, `end_ns`, and per message `kind`, `src`, `dst`, `text`, `sent_ns`, `arrived_ns` (null if it did "
    "not arrive before the run ended)",
    "trace.json": "the run as a trace for Perfetto and chrome://tracing, if `laststand trace` was called",
    STORED_FILE: "only in a store at a URI: the files of the run with their hashes, written last",
}
"""Every file of a run directory and what it is; docs/results.md is made from this."""

CAMPAIGN_PLAN = "plan.json"

CAMPAIGN_FILES: dict[str, str] = {
    CAMPAIGN_PLAN: "what is to run: arms, seeds, options, and the version of the code",
    "rows.jsonl": "one JSON object per finished run; what has a row is not run again",
    "arm-1.toml": "the experiment of the first arm, a valid input for `laststand run`; the next arms likewise",
    "runs/": "the runs that are stored whole, `<arm>/<start of the campaign>-<seed>/`: the first failing ones "
    "of a simulated campaign, all of a real one",
    "corpus/": "of a guided campaign: the experiments of runs that reached something new or failed, a file each;"
    " `run` with the `root_seed` that `search` of its row names repeats a mutated one",
    "compare.json": "the result; missing while runs are missing",
    "compare.html": "the result as a page that links the stored runs",
    "job-1.toml": "of a night instead: the experiment of the first job, and so on",
    "jobs.json": "of a night instead: the numbers of each job; missing while the night is not over",
    "nightly.json": "of a night: the result: new, open, known and resolved findings; three more files show it",
    "nightly.html": "the result of a night as a page",
    "summary.md": "the result of a night in Markdown, for job summaries",
    "junit.xml": "the result of a night as test cases, for CI systems",
    "search.json": "of a search for defects instead: how many runs each defect took, per oracle",
    "search.html": "the result of a search for defects as a page",
    RUNNING_FILE: "only in a store at a URI: the machine and the directory in which it is run now",
    "workers.log": "what worker processes wrote to standard error; `spark.log` for a Spark job",
}
"""Every file of a campaign's directory; docs/results.md is made from this."""

_STAMP = re.compile(r"\d{8}T\d{6}Z")
_STAMP_FORMAT = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The paths of one run's files."""

    directory: Path

    @property
    def experiment(self) -> Path:
        """The resolved experiment."""
        return self.directory / "experiment.toml"

    @property
    def replay(self) -> Path:
        """What a replay needs."""
        return self.directory / "replay.json"

    @property
    def run(self) -> Path:
        """The summary."""
        return self.directory / "run.json"

    @property
    def verdict(self) -> Path:
        """The judgement."""
        return self.directory / "verdict.json"

    @property
    def summary(self) -> Path:
        """The summary in Markdown."""
        return self.directory / "summary.md"

    @property
    def report(self) -> Path:
        """The report."""
        return self.directory / "report.html"

    @property
    def shrink(self) -> Path:
        """What is known of a shrunk run."""
        return self.directory / "shrink.json"

    @property
    def history(self) -> Path:
        """The directory of the history."""
        # Loading Arrow takes a quarter of a second, and most commands need only the other names.
        from harness.history.parquet import history_directory

        return history_directory(self.directory)

    @property
    def metrics(self) -> Path:
        """The metrics of the nodes over time."""
        return self.directory / "metrics.jsonl"

    @property
    def trace(self) -> Path:
        """The run as a trace."""
        return self.directory / "trace.json"

    @property
    def messages(self) -> Path:
        """The messages around the decisive moment of a simulated run."""
        return self.directory / "messages.json"

    @property
    def recorded_messages(self) -> Path:
        """The messages that the nodes of a real run recorded."""
        return self.directory / "messages.parquet"

    @property
    def spark_log(self) -> Path:
        """What Spark logged."""
        return self.directory / "spark.log"


def utc_stamp(moment: datetime) -> str:
    """Returns the stamp of a moment, for example "20260131T235959Z".

    Raises:
        ValueError: The moment has no time zone.
    """
    if moment.tzinfo is None:
        raise ValueError("a moment needs a time zone")
    return moment.astimezone(UTC).strftime(_STAMP_FORMAT)


def parse_stamp(stamp: str) -> datetime:
    """Returns the moment of a stamp; whatever follows the stamp is ignored.

    Raises:
        ValueError: It does not begin with a stamp.
    """
    return datetime.strptime(stamp[:16], _STAMP_FORMAT).replace(tzinfo=UTC)


def run_name(stamp: str, seed: int | str, repetition: int = 1) -> str:
    """Returns the last part of a run's id.

    Args:
        stamp: See `utc_stamp`.
        seed: A number or a commit hash.
        repetition: Counts runs of one second and seed from 1.

    Raises:
        ValueError: It is not a stamp.
        UsageError: The seed cannot be part of a file name.
    """
    if not _STAMP.fullmatch(stamp):
        raise ValueError(f"{stamp!r} is not a stamp like 20260131T235959Z")
    if not re.fullmatch(r"-?[0-9A-Za-z]{1,64}", str(seed)):
        raise UsageError(f"a seed is a number or a commit hash, not {str(seed)!r}")
    suffix = "" if repetition == 1 else f"-{repetition}"
    return f"{stamp}-{seed}{suffix}"


def is_run_name(name: str) -> bool:
    """Returns whether a directory name is that of a run."""
    return _STAMP.match(name) is not None and name[16:17] == "-"


def is_in_campaign(directory: Path) -> bool:
    """Returns whether a campaign keeps a run directory, which no store then knows by an id."""
    parents = directory.resolve().parents
    return len(parents) > 2 and (parents[2] / CAMPAIGN_PLAN).is_file()


def check_experiment_name(name: str) -> str:
    """Returns the name if it can be a folder of runs.

    Raises:
        UsageError: It cannot.
    """
    if not re.fullmatch(r"[0-9A-Za-z_+:,=@][0-9A-Za-z_.+:,=@ -]{0,99}", name) or name == LATEST:
        raise UsageError(
            f"{name!r} cannot be the name of an experiment: use letters, digits, '-', '_' and '.', "
            f"begin with none of '-' and '.', and do not call it {LATEST!r}"
        )
    return name
