"""What each command does. `harness.cli` parses, this carries out and returns the exit code."""

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from checkers.kernels.verdict_json import verdict_from_json
from harness import cluster_commands, exit_codes, world_commands
from harness import experiment as experiments
from harness.contracts.verdict import Validity, Verdict
from harness.errors import HarnessFailure, HistoryError, UsageError
from harness.experiment import Experiment
from harness.pipeline import check_world, finish_run, load_replay, record_run, to_json_line
from harness.progress import ProgressLine
from harness.scenario import Scenario
from harness.scenarios import find_by_name, find_scenario
from harness.scenarios.outcome import outcome_word, predicted_outcome
from harness.seeds import check_seed
from harness.spark_options import SparkOptions, parse_spark_options
from results.layout import RunFiles, utc_stamp
from results.report import build_compare_report, build_report
from results.report.terminal import plain, terminal_summary
from results.store import RunStore, read_json, write_json

EXIT_CODE_OF = {
    "valid": exit_codes.VALID,
    "invalid": exit_codes.INVALID,
    "unknown": exit_codes.UNKNOWN,
}
BUILT_IN_COMPARE = Path(__file__).parent / "experiments" / "elr-compare.toml"
ATTENTION_SHOWN_MAX = 3
DEMO_PROFILES = ("kafka-4.0", "kafka-4.1")


def _store(options: argparse.Namespace, *, to_write: bool = False) -> RunStore:
    """Returns the run store that `--results` names.

    Raises:
        UsageError: It is no folder, or none can be made there.
    """
    root: Path = options.results
    try:
        if to_write:
            root.mkdir(parents=True, exist_ok=True)
        if root.exists() and not root.is_dir():
            raise UsageError(f"--results {root} is not a folder")
    except OSError as error:
        raise UsageError(f"--results {root} cannot be a folder: {error.strerror}") from None
    return RunStore(root)


def doctor(options: argparse.Namespace) -> int:
    """Says what was found on this machine and what is missing."""
    from harness.doctor import examine, warm_up

    if options.warm:
        warm_up(ProgressLine(quiet=options.quiet))
    findings = examine()
    if options.on is not None:
        findings += world_commands.examine_world(options.on, options.hosts)
    if options.json:
        print(to_json_line({"findings": [finding.to_json() for finding in findings]}))
    else:
        for finding in findings:
            print(finding.line())
    return exit_codes.VALID if all(finding.is_good for finding in findings) else exit_codes.FAILURE


def reproduce(options: argparse.Namespace) -> int:
    """Carries out a scripted scenario, judges it and says whether it came out as predicted."""
    scenario = find_scenario(options.scenario, options.variant)
    experiment = experiments.with_overrides(
        scenario_experiment(scenario, options.profile, sim_wire=options.sim_wire),
        on=options.on,
        inventory=options.hosts,
    )
    if options.attempts == 1:
        return _run_and_judge(options, experiment)
    return _attempts(options, experiment)


def run(options: argparse.Namespace) -> int:
    """Runs an experiment from a file."""
    experiment = experiments.load(
        options.experiment,
        on=options.on,
        inventory=options.hosts,
        profile=options.profile,
        weather=options.weather,
        duration_ms=options.duration_ms,
        sim_wire=True if options.sim_wire else None,
    )
    if options.print_config:
        data = experiments.to_data(experiment)
        print(to_json_line(data) if options.json else experiments.dumps(experiment).rstrip())
        return exit_codes.VALID
    return _run_and_judge(options, experiment)


def replay(options: argparse.Namespace) -> int:
    """Runs a stored run again.

    In its own world, the simulation, a different trace hash is a failure that says why it may be. In another
    world the answer is how often the stored finding came again.
    """
    store = _store(options, to_write=True)
    spark = parse_spark_options(options)
    original = store.find(options.run)
    experiment, seed, stored = load_replay(original)
    progress = ProgressLine(quiet=options.quiet)
    if options.on is not None and options.on != experiment.on:
        return _replay_elsewhere(options, store, original, experiment, seed)
    if experiment.on != experiments.SIMULATION:
        raise UsageError(
            f"{store.run_id(original)} ran on {experiment.on}, where no run repeats another; "
            "run its experiment.toml again instead, or name another world with --on"
        )
    directory = _record(experiment, seed, store, progress)
    again = read_json(RunFiles(directory).replay)
    (summary,) = _check([directory], store, spark, progress)
    same = again["trace_hash"] == stored["trace_hash"]
    summary["replay_of"] = store.run_id(original)
    summary["same_trace"] = same
    write_json(RunFiles(directory).run, summary)
    _print_run(options, directory, summary)
    if same:
        return EXIT_CODE_OF[summary["verdict"]]
    cause = (
        "the code has changed since that run"
        if again["code"] != stored["code"]
        else "the code is the same, so the simulation is not deterministic"
    )
    raise HarnessFailure(
        f"trace hash {again['trace_hash']} differs from the stored {stored['trace_hash']}: {cause}"
    )


def _replay_elsewhere(
    options: argparse.Namespace, store: RunStore, original: Path, experiment: Experiment, seed: int
) -> int:
    """Carries the stored schedule out in another world, several times, and says whether the finding came again."""
    spark = parse_spark_options(options)
    progress = ProgressLine(quiet=options.quiet)
    finding = finding_of(read_json(RunFiles(original).run))
    answer: dict[str, Any] = {
        "replay_of": store.run_id(original),
        "on": options.on,
        "finding": finding,
        "attempts": options.attempts,
    }
    try:
        elsewhere = experiments.with_overrides(experiment, on=options.on, inventory=options.hosts)
        check_world(elsewhere, seed)
    except UsageError as error:
        answer |= {"answer": "cannot be expressed", "why": str(error)}
        text = f"cannot be expressed on {options.on}: {error}"
        print(to_json_line(answer) if options.json else text)
        return exit_codes.UNKNOWN
    directories = [_record(elsewhere, seed, store, progress) for _ in range(options.attempts)]
    summaries = _check(directories, store, spark, progress)
    confirmed = sum(confirms(summary, finding) for summary in summaries)
    for directory, summary in zip(directories, summaries, strict=True):
        summary["replay_of"] = answer["replay_of"]
        write_json(RunFiles(directory).run, summary)
    word = f"confirmed {confirmed} of {options.attempts}" if confirmed else "not reproduced"
    answer |= {"answer": word, "runs": [summary["run"] for summary in summaries]}
    if options.json:
        print(to_json_line(answer))
    else:
        for summary in summaries:
            print(f"{summary['verdict']:<10}{finding_of(summary):<42}{summary['run']}")
        print(f"{answer['replay_of']} found {finding!r}; on {options.on}: {word}")
    return max((EXIT_CODE_OF[summary["verdict"]] for summary in summaries), key=_badness)


def finding_of(summary: Mapping[str, Any]) -> str:
    """Returns what a run found, in a word that means the same in every world.

    That is the outcome of a scripted scenario, and otherwise the anomaly that its verdict names first. A run that
    found nothing is "valid" or "unknown".
    """
    if summary.get("outcome"):
        return str(summary["outcome"])
    forbidden = forbidden_anomalies(summary)
    for reason in summary.get("reasons", ()):
        word = re.split(r"[ :]", str(reason), maxsplit=1)[0]
        if word in forbidden:
            return word
    return str(summary.get("verdict", "unknown"))


def forbidden_anomalies(summary: Mapping[str, Any]) -> frozenset[str]:
    """Returns the ids of the anomalies that nothing allowed."""
    return frozenset(
        str(anomaly["id"])
        for anomaly in summary.get("anomalies", ())
        if anomaly["judgement"] == "forbidden"
    )


def confirms(summary: Mapping[str, Any], finding: str) -> bool:
    """Whether a run shows what another had found, whatever else it shows."""
    return finding == finding_of(summary) or finding in forbidden_anomalies(summary)


def _badness(code: int) -> int:
    return (exit_codes.VALID, exit_codes.UNKNOWN, exit_codes.INVALID).index(code)


def check(options: argparse.Namespace) -> int:
    """Judges a stored run again."""
    store = _store(options)
    spark = parse_spark_options(options)
    directory = store.find(options.run)
    progress = ProgressLine(quiet=options.quiet)
    (summary,) = _check([directory], store, spark, progress)
    _print_run(options, directory, summary)
    return EXIT_CODE_OF[summary["verdict"]]


def report(options: argparse.Namespace) -> int:
    """Renders a stored run's report again."""
    directory = _store(options).find(options.run)
    _stored_verdict(directory)
    path = build_report(directory)
    print(to_json_line({"report": str(path)}) if options.json else path)
    return exit_codes.VALID


def list_runs(options: argparse.Namespace) -> int:
    """Lists the stored runs, newest first."""
    entries = _store(options).list()
    if options.json:
        rows = [
            {
                "run": entry.id,
                "seed": entry.seed,
                "verdict": entry.verdict,
                "profile": entry.summary.get("profile", ""),
                "unexcused_lost_records": entry.unexcused_lost_records,
            }
            for entry in entries
        ]
        print(to_json_line({"runs": rows}))
        return exit_codes.VALID
    if not entries:
        print(f"no runs in {options.results} yet; `laststand reproduce` makes one")
    for entry in entries:
        profile = str(entry.summary.get("profile", ""))
        print(f"{entry.verdict:<11}{profile:<11}{entry.unexcused_lost_records:>6} lost  {entry.id}")
    return exit_codes.VALID


def compare(options: argparse.Namespace) -> int:
    """Runs the same seeds under two settings and tests the difference."""
    from harness.compare import compare as run_compare

    experiment = experiments.load(
        options.experiment or BUILT_IN_COMPARE, on=options.on, inventory=options.hosts
    )
    return _campaign(options, experiment, options.vary, run_compare)


def swarm(options: argparse.Namespace) -> int:
    """Runs many seeds of one experiment."""
    from harness.compare import swarm as run_swarm

    experiment = experiments.load(
        options.experiment or BUILT_IN_COMPARE,
        profile=options.profile,
        on=options.on,
        inventory=options.hosts,
    )
    return _campaign(options, experiment, None, run_swarm)


def broker(options: argparse.Namespace) -> int:
    """Runs one node of the reference system."""
    from system_under_test.process import run_file

    return run_file(options.config, ends_with_stdin=options.until_stdin_closes)


image_build = world_commands.image_build
reset = world_commands.reset
cluster_up = cluster_commands.up
cluster_status = cluster_commands.status
cluster_down = cluster_commands.down
cluster_act = cluster_commands.act


def demo(options: argparse.Namespace) -> int:
    """Shows the bug with ELR off, its absence with ELR on, and a small comparison."""
    from harness.compare import compare as run_compare

    store = _store(options, to_write=True)
    spark = parse_spark_options(options)
    progress = ProgressLine(quiet=options.quiet)
    scenario = find_scenario("last-replica-standing")
    directories = [
        _record(scenario_experiment(scenario, profile), 1, store, progress)
        for profile in DEMO_PROFILES
    ]
    summaries = _check(directories, store, spark, progress)
    campaign = options.results / "demo-compare"
    result = run_compare(
        experiments.load(BUILT_IN_COMPARE),
        vary=f"profile={','.join(DEMO_PROFILES)}",
        seeds=options.seeds,
        first_seed=0,
        spark=spark,
        progress=progress,
        directory=campaign,
    )
    compare_report = build_compare_report(campaign / "compare.html", result)
    reports = [str(RunFiles(directory).report) for directory in directories]
    as_predicted = all(summary["as_predicted"] for summary in summaries)
    if options.json:
        print(
            to_json_line(
                {
                    "runs": summaries,
                    "compare": result,
                    "reports": [*reports, str(compare_report)],
                    "as_predicted": as_predicted,
                }
            )
        )
    else:
        for directory, summary in zip(directories, summaries, strict=True):
            print(f"{_run_text(directory, summary)}\n")
        print(f"{_campaign_text(result)}\n")
        print(
            "Three pages for a browser: the comparison, the run with ELR on, and the run with ELR off"
        )
        print("in which the records were lost, which is the one to begin with:")
        for path in (compare_report, reports[1], reports[0]):
            print(path)
    return exit_codes.VALID if as_predicted else exit_codes.INVALID


def scenario_experiment(
    scenario: Scenario, profile: str | None, *, sim_wire: bool = False
) -> Experiment:
    """Returns the experiment in which a scripted scenario is carried out: calm weather, nothing random."""
    base = Experiment(
        name=scenario.name.replace(":", "-"),
        weather="calm",
        scenario=scenario.name,
        sim_wire=sim_wire,
    )
    topic = replace(
        base.topic,
        replication_factor=scenario.replication_factor,
        min_insync_replicas=scenario.min_insync_replicas,
    )
    # The produce request of V5 must outlive one and a half lag limits, or it times out before the ISR shrinks.
    workload = replace(base.workload, request_timeout_ms=4000)
    return experiments.with_overrides(base, profile=profile, topic=topic, workload=workload)


def _campaign(
    options: argparse.Namespace, experiment: Experiment, vary: str | None, campaign: Any
) -> int:
    check_seed(options.first_seed + options.seeds - 1)
    check_world(experiment, options.first_seed)
    store = _store(options, to_write=True)
    directory = _new_folder(store.root, "swarm" if vary is None else "compare")
    arguments: dict[str, Any] = {
        "seeds": options.seeds,
        "first_seed": options.first_seed,
        "spark": parse_spark_options(options),
        "progress": ProgressLine(quiet=options.quiet),
        "directory": directory,
    }
    if vary is not None:
        arguments["vary"] = vary
    try:
        result = campaign(experiment, **arguments)
    except UsageError:
        directory.rmdir()
        raise
    path = build_compare_report(directory / "compare.html", result)
    if options.json:
        print(to_json_line(result))
    else:
        print(_campaign_text(result))
        print(f"report: {path}")
    return _campaign_exit_code(result, is_comparison=vary is not None)


def _campaign_exit_code(result: Mapping[str, Any], *, is_comparison: bool) -> int:
    """A comparison that came to its end is valid whatever it found; a swarm is as bad as its worst run."""
    arms = result["arms"]
    if any(arm["errors"] for arm in arms):
        return exit_codes.FAILURE
    if is_comparison:
        return exit_codes.VALID
    if any(arm["invalid"] for arm in arms):
        return exit_codes.INVALID
    return exit_codes.UNKNOWN if any(arm["unknown"] for arm in arms) else exit_codes.VALID


def _campaign_text(result: Mapping[str, Any]) -> str:
    lines = [
        f"{'arm':<24}{'runs':>6}{'with loss':>11}{'95 %':>16}{'records':>9}"
        f"{'unavail. ms':>13}{'unknown':>9}{'errors':>8}"
    ]
    for arm in result["arms"]:
        low, high = arm["loss_rate_interval"]
        median_ms = arm["unavailable_ms_median"]
        unavailable = "-" if median_ms is None else f"{median_ms:.0f}"
        lines.append(
            f"{arm['name']:<24}{arm['runs']:>6}{arm['runs_with_unexcused_loss']:>11}"
            f"{f'{low:.1%}..{high:.1%}':>16}{arm['unexcused_lost_records']:>9}"
            f"{unavailable:>13}{arm['unknown']:>9}{arm['errors']:>8}"
        )
    if result.get("mcnemar_p") is not None:
        lines.append(
            f"McNemar's exact test, same seeds in every arm: p = {result['mcnemar_p']:.3g}"
        )
    attention = result.get("attention", ())
    if attention:
        lines.extend(["", f"runs that deserve a look: {len(attention)}, for example"])
        lines.extend(f"  {run['command']}" for run in attention[:ATTENTION_SHOWN_MAX])
    return "\n".join(lines)


def _new_folder(root: Path, name: str) -> Path:
    """Makes a folder for a campaign that no other campaign has."""
    stamp = utc_stamp(datetime.now(UTC))
    for repetition in count(1):
        folder = root / (f"{name}-{stamp}" if repetition == 1 else f"{name}-{stamp}-{repetition}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise AssertionError("numbers do not end")


def _run_and_judge(options: argparse.Namespace, experiment: Experiment) -> int:
    spark = parse_spark_options(options)
    store = _store(options, to_write=True)
    progress = ProgressLine(quiet=options.quiet)
    directory = _record(experiment, options.seed, store, progress)
    (summary,) = _check([directory], store, spark, progress)
    _print_run(options, directory, summary)
    return EXIT_CODE_OF[summary["verdict"]]


def _attempts(options: argparse.Namespace, experiment: Experiment) -> int:
    """Carries a scenario out several times, seed by seed, and says how often it came out how."""
    spark = parse_spark_options(options)
    store = _store(options, to_write=True)
    progress = ProgressLine(quiet=options.quiet)
    seeds = range(options.seed, options.seed + options.attempts)
    check_seed(seeds[-1])
    directories = [_record(experiment, seed, store, progress) for seed in seeds]
    summaries = _check(directories, store, spark, progress)
    outcomes: dict[str, int] = {}
    for summary in summaries:
        outcomes[summary["outcome"]] = outcomes.get(summary["outcome"], 0) + 1
    as_predicted = sum(bool(summary["as_predicted"]) for summary in summaries)
    with_loss = sum(summary["unexcused_lost_records"] > 0 for summary in summaries)
    lost = sum(summary["unexcused_lost_records"] for summary in summaries)
    if options.json:
        print(
            to_json_line(
                {
                    "scenario": experiment.scenario,
                    "on": experiment.on,
                    "profile": experiment.profile,
                    "attempts": len(summaries),
                    "with_loss": with_loss,
                    "lost_records": lost,
                    "outcomes": outcomes,
                    "as_predicted": as_predicted,
                    "runs": [summary["run"] for summary in summaries],
                }
            )
        )
    else:
        for summary in summaries:
            print(
                f"{summary['verdict']:<10}{summary['outcome']:<18}"
                f"{summary['unexcused_lost_records']:>4} lost  {summary['run']}"
            )
        print(
            f"{experiment.scenario} on {experiment.on}, {experiment.profile}: acknowledged records "
            f"lost in {with_loss} of {len(summaries)} attempts ({lost} records); outcome as "
            f"predicted in {as_predicted} of {len(summaries)}"
        )
    return exit_codes.VALID if as_predicted == len(summaries) else exit_codes.INVALID


def _record(experiment: Experiment, seed: int, store: RunStore, progress: ProgressLine) -> Path:
    progress.say(f"seed {seed}, profile {experiment.profile}: {experiment.name}")
    directory, result = record_run(
        experiment, seed, store, now=datetime.now(UTC), progress=progress.bar
    )
    if experiment.on != experiments.SIMULATION:
        progress.say(f"ran {result.virtual_ms / 1e3:.1f} s on {experiment.on}, seed {seed}")
        return directory
    progress.say(
        f"simulated {result.virtual_ms / 1e3:.1f} s, {result.counters.get('messages', 0)} messages, "
        f"trace {result.trace_hash}, seed {seed}"
    )
    return directory


def _check(
    directories: Sequence[Path], store: RunStore, spark: SparkOptions, progress: ProgressLine
) -> list[dict[str, Any]]:
    from harness.check import check_locally, check_on_spark

    if spark.enabled:
        progress.say("checking on Spark")
        verdicts = check_on_spark(directories, spark)
    else:
        verdicts = check_locally(directories)
    return [
        _with_outcome(
            directory, finish_run(directory, store.run_id(directory), verdict_from_json(verdict))
        )
        for directory, verdict in zip(directories, verdicts, strict=True)
    ]


def _with_outcome(directory: Path, summary: dict[str, Any]) -> dict[str, Any]:
    """Adds what a scripted scenario came to and what its table predicts, and stores both."""
    if not summary.get("scenario"):
        return summary
    try:
        scenario = find_by_name(str(summary["scenario"]))
        predicted = predicted_outcome(scenario, str(summary["profile"]))
    except (KeyError, ValueError, UsageError) as error:
        raise HistoryError(f"{RunFiles(directory).run} is damaged: {error}") from None
    outcome = outcome_word(_stored_verdict(directory))
    summary = {
        **summary,
        "outcome": outcome,
        "predicted": predicted,
        "as_predicted": outcome == predicted,
    }
    write_json(RunFiles(directory).run, summary)
    return summary


def _stored_verdict(directory: Path) -> Verdict:
    """Reads verdict.json; a run that was not judged has an unknown verdict.

    Raises:
        HistoryError: It is damaged.
    """
    path = RunFiles(directory).verdict
    try:
        return verdict_from_json(read_json(path))
    except FileNotFoundError:
        return Verdict(validity=Validity.UNKNOWN, reasons=("not judged",))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise HistoryError(f"{path} is damaged; `laststand check` writes a new one") from None


def _print_run(options: argparse.Namespace, directory: Path, summary: Mapping[str, Any]) -> None:
    if options.json:
        report_path = str(RunFiles(directory).report)
        print(to_json_line({**summary, "directory": str(directory), "report": report_path}))
    else:
        print(_run_text(directory, summary))


def _run_text(directory: Path, summary: Mapping[str, Any]) -> str:
    if "report_error" in summary:
        print(f"laststand: no report could be made: {summary['report_error']}", file=sys.stderr)
        lines = [summary["verdict"].upper(), *(f"  {reason}" for reason in summary["reasons"])]
        text = "\n".join(plain(line) for line in lines)
    else:
        text = terminal_summary(directory).rstrip("\n")
    if "predicted" in summary:
        word = "as predicted" if summary["as_predicted"] else "NOT as predicted"
        text += f"\n\noutcome {summary['outcome']!r}, predicted {summary['predicted']!r}: {word}"
    return text
