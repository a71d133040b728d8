"""Campaigns: many seeds, one setting (`swarm`) or several on the same seeds (`compare`).

The same seed means the same weather, the same fault schedule and the same client decisions in every arm, so the
other arms are compared with the first one pair by pair (McNemar's exact test on the seeds on which they differ).
If systems differ in speed, all arms get the times of the slowest one: other schedules would not be pairs.
Each run is one row in `rows.jsonl`, from which everything else is computed. Runs worth a closer look are listed
with the command that repeats them, and the first of them are stored whole.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from checkers.spark import SparkOptions
from harness.campaigns.crew import Crew, Row, local_crew, spark_crew
from harness.campaigns.drawn import DRAWN, draws_profile
from harness.campaigns.engine import Engine, Meter, Remaining, Source
from harness.campaigns.files import COMPARE, RESULT_FILE, SWARM
from harness.campaigns.guided.campaign import GuidedSwarm
from harness.campaigns.guided.guidance import check_guidable
from harness.campaigns.kept_runs import KeptRuns, stored_run
from harness.campaigns.plan import KEEP_FAILING, CampaignPlan
from harness.campaigns.requests import requests_of, run_command
from harness.campaigns.row_log import RowLog
from harness.campaigns.totals import ArmTotals, Attention, Pairs
from harness.contracts.progress import ProgressDisplay
from harness.errors import HarnessFailure, UsageError
from harness.runs import experiment_file as experiments
from harness.runs.code_version import code_version
from harness.runs.coverage import check_has_coverage
from harness.runs.experiment import Experiment
from harness.runs.planned import has_same_schedules
from harness.runs.promises import promises_of
from results.layout import RunFiles, utc_stamp
from results.store import write_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """Where the runs of a campaign take place; changes no result.

    Attributes:
        jobs: How many worker processes, without Spark.
        spark: Whether and where Spark distributes the runs.
    """

    jobs: int
    spark: SparkOptions


def compare_plan(
    experiment: Experiment,
    *,
    vary: str,
    seeds: int,
    first_seed: int,
    keep_failing: int = KEEP_FAILING,
) -> CampaignPlan:
    """Plans the same seeds in every arm.

    Args:
        experiment: What to run.
        vary: "key=value,value": a key of the experiment and its value in each arm.
        seeds: How many seeds.
        first_seed: The first of them.
        keep_failing: How many failing runs are stored whole.

    Raises:
        UsageError: `vary` names no key or value of an experiment.
    """
    key, separator, values = vary.partition("=")
    names = [value for value in values.split(",") if value]
    if not separator or len(names) < 2 or len(set(names)) != len(names):
        raise UsageError(
            f"--vary takes a key and at least two different values, like "
            f"profile=kafka-4.0,kafka-4.1, not {vary!r}"
        )
    arms = {f"{key}={name}": experiments.vary(experiment, key, name) for name in names}
    if key != "time_scale":
        slowest = max(arm.time_scale for arm in arms.values())
        arms = {name: replace(arm, time_scale=slowest) for name, arm in arms.items()}
    if len({arm.on for arm in arms.values()}) > 1:
        raise UsageError(
            "the arms of a comparison run in one environment; to compare environments, replay a run in another "
            "(`laststand replay RUN --on docker`)"
        )
    return CampaignPlan(
        kind=COMPARE,
        arms=arms,
        vary=vary,
        seeds=seeds,
        first_seed=first_seed,
        keep_failing=keep_failing,
        started=utc_stamp(datetime.now(UTC)),
        code=code_version(),
    )


def swarm_plan(
    experiment: Experiment,
    *,
    seeds: int,
    first_seed: int,
    keep_failing: int = KEEP_FAILING,
    guided: float = 0.0,
    coverage: bool = False,
) -> CampaignPlan:
    """Plans many seeds of one experiment; see `compare_plan`.

    Args:
        experiment: What to run.
        seeds: How many runs.
        first_seed: The number of the first one.
        keep_failing: How many failing runs are stored whole.
        guided: The share of runs that are mutations of new runs; 0 for none.
        coverage: Whether what the runs reached is counted without guidance, too.

    Raises:
        UsageError: The experiment has no random faults that could be guided, or is not simulated.
    """
    if guided:
        check_guidable(experiment)
    if coverage:
        check_has_coverage(experiment)
    return CampaignPlan(
        kind=SWARM,
        arms={_arm_name(experiment): experiment},
        seeds=seeds,
        first_seed=first_seed,
        keep_failing=keep_failing,
        guided=guided,
        coverage=coverage,
        started=utc_stamp(datetime.now(UTC)),
        code=code_version(),
    )


def run_campaign(
    plan: CampaignPlan,
    directory: Path,
    workers: Workers,
    progress: ProgressDisplay,
    *,
    on_interrupt: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:
    """Runs what a stored plan still has to run, and returns the result of the whole campaign.

    Args:
        plan: The plan that `directory` has.
        directory: The campaign's directory.
        workers: Where the runs take place.
        progress: Shows how far the campaign is.
        on_interrupt: Called with the result so far when the campaign is interrupted.

    Returns:
        The result, which is also stored: `arms`, `attention`, and for a comparison `comparisons` of every
        other arm with the first one, `mcnemar_p` and `difference_interval` of the first two arms, the `discordant`
        seeds, and `same_schedules`.

    Raises:
        UsageError: Another process is running the campaign.
        HarnessFailure: A worker died.
        KeyboardInterrupt: It was interrupted.
    """
    kept = KeptRuns(directory, plan.keep_failing, keeps_all=not plan.is_simulated)
    meter = Meter(progress, plan.total)
    guided = GuidedSwarm(plan, directory) if plan.guided or plan.coverage else None
    with RowLog(directory, _Ledger(kept, meter, guided).notice) as rows:
        if rows.damage:
            progress.message(f"{rows.damage}; those runs are repeated")
        kept.clean()
        try:
            _run_rest(plan, directory, workers, rows, kept, meter, guided)
        except KeyboardInterrupt:
            on_interrupt(result_of(plan, directory, rows, guided))
            raise
        if len(rows) != plan.total:
            raise HarnessFailure(f"{plan.total} runs were requested, but {len(rows)} came back")
        result = result_of(plan, directory, rows, guided)
    write_json(directory / RESULT_FILE, result)
    return result


def _run_rest(
    plan: CampaignPlan,
    directory: Path,
    workers: Workers,
    rows: RowLog,
    kept: KeptRuns,
    meter: Meter,
    guided: GuidedSwarm | None,
) -> None:
    if len(rows) == plan.total:
        return
    source: Source = guided or Remaining(requests_of(plan, kept), plan.total, rows)
    if guided is not None:
        guided.start(kept, rows)
    crew = _crew(plan, directory, workers, source.remaining)
    meter.start()
    Engine(source, crew, rows, _Ledger(kept, meter, guided), directory).run()
    meter.finish()


def _crew(plan: CampaignPlan, directory: Path, workers: Workers, remaining: int) -> Crew:
    if not plan.is_simulated:
        # One run at a time: concurrent runs would disturb each other's clocks.
        return local_crew(directory, 1, runs_real=True)
    if workers.spark.enabled:
        return spark_crew(directory, workers.spark)
    return local_crew(directory, min(workers.jobs, remaining))


class _Ledger:
    """Passes every row to what counts stored runs, to the display and to the guidance, if there is one."""

    def __init__(self, kept: KeptRuns, meter: Meter, guided: GuidedSwarm | None) -> None:
        self._kept = kept
        self._meter = meter
        self._guided = guided

    def stamp(self, row: Row) -> None:
        """Adds where a guided run comes from."""
        if self._guided is not None:
            self._guided.stamp(row)

    def notice(self, row: Row) -> None:
        """Counts a row."""
        self._kept.notice(row)
        self._meter.notice(row)
        if self._guided is not None:
            self._guided.notice(row)

    def show(self) -> None:
        """Shows the progress."""
        self._meter.show()


def result_of(
    plan: CampaignPlan, directory: Path, rows: RowLog, guided: GuidedSwarm | None = None
) -> dict[str, Any]:
    """Returns the result of the runs that have a row, in one pass over them."""
    totals = {name: ArmTotals() for name in plan.arms}
    pairs = Pairs(list(plan.arms)) if len(plan.arms) >= 2 else None
    attention = Attention()
    for row in rows.read(plan.keys()):
        totals[row["arm"]].add(row)
        attention.add(row)
        if pairs is not None:
            pairs.add(row)
    result: dict[str, Any] = {
        "experiment": next(iter(plan.arms.values())).name,
        "seeds": plan.seeds,
        "first_seed": plan.first_seed,
        "arms": [
            {**numbers.to_json(name), **_system_of(plan.arms[name])}
            for name, numbers in totals.items()
        ],
        "mcnemar_p": None,
        "discordant": [],
        "attention": attention.to_json(),
        "failing": attention.count,
    }
    if plan.vary:
        result["vary"] = plan.vary
    if pairs is not None:
        result.update(pairs.to_json())
        result["same_schedules"] = has_same_schedules(list(plan.arms.values()))
    if guided is not None:
        result["guided"] = guided.result()
    _add_commands(result, plan, directory, guided)
    return result


def _system_of(experiment: Experiment) -> dict[str, Any]:
    """Returns what runs in an arm, and where."""
    keys = ("system", "version", "profile", "on", "time_scale")
    is_drawn = draws_profile(experiment.space)
    return {
        **{key: getattr(experiment, key) for key in keys},
        **({"profile": DRAWN} if is_drawn else {}),
        "elr": None if is_drawn else promises_of(experiment).elr_on,
    }


def _arm_name(experiment: Experiment) -> str:
    if draws_profile(experiment.space):
        return f"profile {DRAWN}"
    return f"profile={experiment.profile}"


def _add_commands(
    result: dict[str, Any], plan: CampaignPlan, directory: Path, guided: GuidedSwarm | None
) -> None:
    """Adds the commands that repeat the listed runs, with absolute paths, and where those are that are stored."""
    for item in result["discordant"]:
        item["commands"] = {
            name: _command(plan, directory, name, item["seed"]) for name in item["losses"]
        }

    def command(arm: str, seed: int) -> str:
        repeated = None if guided is None else guided.command(seed)
        return repeated or _command(plan, directory, arm, seed)

    for arm in result["arms"]:
        if arm["unknown_seed"] is not None:
            arm["unknown_command"] = command(arm["name"], arm["unknown_seed"])
    for item in result["attention"]:
        item["command"] = command(item["arm"], item["seed"])
        stored = stored_run(directory, item)
        item["run"] = "" if stored is None else stored.relative_to(directory).as_posix()
        item["report"] = ""
        if stored is not None and RunFiles(stored).report.is_file():
            item["report"] = RunFiles(stored).report.relative_to(directory).as_posix()


def _command(plan: CampaignPlan, directory: Path, arm: str, seed: int) -> str:
    return run_command(plan.experiment_path(directory.resolve(), arm), seed)
