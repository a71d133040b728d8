"""Builds the report: one HTML file per run that opens from disk, without network, years later."""

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from harness.contracts.verdict import Validity
from results.layout import RunFiles
from results.report.argument import Argument, arguments_of, with_findings
from results.report.charts import Operations, latency_figure, outcome_figure
from results.report.counterexample import counterexample_of
from results.report.fault_words import fault_sentence
from results.report.lanes import partition_figure
from results.report.metrics import COUNTERS, metric_figure, metric_rows, read_changes
from results.report.run import RunData, details_text, levels_of, seconds
from results.report.story import Loss, Story, place_name, story_of, when
from results.report.summary import markdown
from results.report.unseen import LINES_MAX, unseen_figure, unseen_series

PARTITION_FIGURES_MAX = 12
"""Partitions drawn; those with losses or anomalies come first."""

COVERAGE_ROWS_MAX = 50
COVERAGE_COLUMNS_MAX = 8
"""A table with more columns is turned, if it has no more rows than that."""

RAW_MAX = 4000
"""Characters of JSON that are shown."""

LIST_MAX = 40
"""Items of a list that are shown; verdict.json has them all."""

STORY_KINDS = (
    *("finding", "lost", "fault", "heal", "partition"),
    *("broker", "replica", "mark", "phase"),
)
"""Kinds of entries in the order of the check boxes."""

_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True, slots=True, kw_only=True)
class Banner:
    """The banner at the top of the page.

    Attributes:
        validity: valid, invalid, unknown, or "not judged".
        reason: One sentence.
        more_reasons: The other reasons, if there are several.
    """

    validity: str
    reason: str
    more_reasons: tuple[str, ...] = ()

    @property
    def tone(self) -> str:
        """Returns the CSS class of the verdict."""
        return self.validity if self.validity in list(Validity) else "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageTable:
    """Numbers of several things: one row is (name, texts in the order of the columns)."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, list[str]], ...]
    omitted: int

    def transposed(self) -> "CoverageTable":
        """Returns the same numbers with one column per thing, so that few things fit on a page."""
        cells = zip(*(texts for _, texts in self.rows), strict=True)
        return CoverageTable(
            name=self.name,
            columns=tuple(name for name, _ in self.rows),
            rows=tuple(
                (column, list(row)) for column, row in zip(self.columns, cells, strict=True)
            ),
            omitted=self.omitted,
        )


def build_report(run_dir: Path, *, place: Path | None = None) -> Path:
    """Writes report.html and summary.md of a run.

    Args:
        run_dir: The run's directory; its history may be unfinished, and it need not be judged.
        place: What the directory will be renamed to; by default it stays where it is.

    Returns:
        The path of report.html.

    Raises:
        HistoryError: The run is missing or damaged.
    """
    run = RunData(run_dir, place=place)
    story = story_of(run)
    arguments = arguments_of(run, story.losses)
    operations = Operations(run)
    unseen = unseen_series(run)
    metrics = metric_rows(read_changes(run))
    files = RunFiles(run_dir)
    page = environment().get_template("report.html")
    text = page.render(
        run=run,
        banner=banner_of(run),
        facts=facts_of(run),
        levels=levels_of(run),
        counterexample=counterexample_of(run, arguments, story.losses),
        story=with_findings(story, arguments),
        story_kinds=_story_kinds(with_findings(story, arguments)),
        figures=_figures(run, story, arguments),
        figures_omitted=max(len(run.partitions) - PARTITION_FIGURES_MAX, 0),
        outcomes=operations.outcomes(),
        outcome_chart=outcome_figure(run, operations),
        latency_chart=latency_figure(run, operations),
        unseen=unseen,
        unseen_chart=unseen_figure(run, unseen),
        unseen_lines_max=LINES_MAX,
        metric_chart=metric_figure(run, metrics),
        metric_counters=[name for name, _ in COUNTERS],
        errors=operations.errors(),
        loud=[one for one in arguments if one.tone != "calm"],
        quiet=[one for one in arguments if one.tone == "calm"],
        first_shown=_first_shown(arguments),
        partition_names=[place_name(*place) for place in run.partitions],
        processes=_processes(story, arguments),
        details_of=_shortened,
        raw=_raw,
        coverage=coverage_of(run),
        coverage_tables=coverage_tables_of(run),
        marks=sorted(Counter(run.tables["marks"].column("mark").to_pylist()).items()),
        world=world_of(run),
        drawn=drawn_of(run),
        lost_count=unexcused_lost(run),
        fault_sentence=fault_sentence,
    )
    write_text(files.report, text)
    write_text(files.summary, markdown(run, story))
    return files.report


def _first_shown(arguments: Sequence[Argument]) -> dict[int, int]:
    """Returns for every witness the number of the first anomaly that names it; links lead there."""
    found: dict[int, int] = {}
    for argument in arguments:
        for witness in argument.witnesses:
            if witness.op_index >= 0:
                found.setdefault(witness.op_index, argument.number)
    return found


def _processes(story: Story, arguments: Sequence[Argument]) -> list[int]:
    """Returns the processes that the page names, for its filter."""
    named = {witness.process for argument in arguments for witness in argument.witnesses}
    named |= {record.process for entry in story.entries for record in entry.lost}
    return sorted(process for process in named if process >= 0)


def environment() -> Environment:
    """Returns the template environment: everything is escaped, and a missing name is an error."""
    templates = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["seconds"] = seconds
    templates.filters["when"] = when
    templates.filters["details_text"] = details_text
    return templates


def write_text(path: Path, text: str) -> None:
    """Writes a file in one step: a reader sees the old content or the new one."""
    partial = path.with_name(f".{path.name}.partial")
    # Text from a foreign history may hold lone surrogates; a report never fails on a detail.
    partial.write_text(text, encoding="utf-8", errors="replace")
    os.replace(partial, path)


def banner_of(run: RunData) -> Banner:
    """Returns the verdict in one line."""
    if run.verdict is None:
        return Banner(
            validity="not judged",
            reason="The run has a history but no verdict; `laststand check` gives it one.",
        )
    validity = str(run.verdict.get("validity", Validity.UNKNOWN))
    reasons = tuple(str(reason) for reason in run.verdict.get("reasons", ()))
    if not reasons:
        reasons = (
            ("Nothing that was promised to a client was broken.",)
            if validity == Validity.VALID
            else ("The verdict gives no reason.",)
        )
    return Banner(validity=validity, reason=reasons[0], more_reasons=reasons[1:])


def unexcused_lost(run: RunData) -> int:
    """Returns how many acknowledged records are gone without an excuse."""
    return _integer((run.verdict or run.summary).get("unexcused_lost_records"))


def facts_of(run: RunData) -> list[tuple[str, str]]:
    """Returns what identifies the run."""
    facts = [
        ("seed", run.fact("seed")),
        ("system", f"{run.fact('system')} {run.fact('version', '')}".strip()),
        ("profile", run.fact("profile")),
        ("world", run.world),
        ("trace hash", run.fact("trace_hash", run.fact("trace", "none"))),
        ("recorded time", seconds(run.end_ns)),
        ("brokers", ", ".join(f"b{broker}" for broker in run.brokers) or "unknown"),
    ]
    if run.fact("recovery", ""):
        facts.append(("recovery", run.fact("recovery")))
    excused = (run.verdict or {}).get("excused_lost_records", 0)
    if excused:
        facts.append(("excused lost records", str(excused)))
    facts.extend(
        (key, run.summary[key])
        for key in ("experiment", "scenario", "code", "timings", "weather", "environment")
        if isinstance(run.summary.get(key), str) and run.summary[key]
    )
    return facts


def world_of(run: RunData) -> list[tuple[str, list[tuple[str, str]]]]:
    """Returns what a real environment reports about itself: tables of names and values, by title."""
    world = run.summary.get("environment")
    if not isinstance(world, dict):
        return []
    tables: list[tuple[str, list[tuple[str, str]]]] = []
    faults = world.get("faults")
    if isinstance(faults, dict) and faults:
        rows = [(str(name), str(how)) for name, how in faults.items()]
        tables.append(("how each fault is done here", rows))
    hosts = world.get("hosts")
    for host, facts in (hosts if isinstance(hosts, dict) else {}).items():
        if isinstance(facts, dict):
            settings = facts.get("settings")
            rows = [("kernel", str(facts.get("kernel", "unknown")))]
            rows += [
                (str(name), str(value))
                for name, value in (settings if isinstance(settings, dict) else {}).items()
            ]
            tables.append((f"kernel of {host}", rows))
    client = world.get("client")
    if isinstance(client, dict) and client:
        rows = [(str(name), str(version)) for name, version in client.items()]
        tables.append(("programs of the client", rows))
    left = world.get("left_behind")
    if isinstance(left, list) and left:
        tables.append(("could not be removed", [("", str(thing)) for thing in left]))
    return tables


def drawn_of(run: RunData) -> list[tuple[str, str]]:
    """Returns what the seed drew from the space of the experiment: keys and values."""
    drawn = run.summary.get("drawn")
    if not isinstance(drawn, dict):
        return []
    return [
        (str(key), ", ".join(map(str, value)) if isinstance(value, list) else str(value))
        for key, value in sorted(drawn.items())
    ]


def coverage_of(run: RunData) -> list[tuple[str, str]]:
    """Returns the numbers that show how much was tested."""
    return [
        (str(key).replace("_", " "), _number_text(value))
        for key, value in _coverage(run).items()
        if not _is_table(value)
    ]


def coverage_tables_of(run: RunData) -> list[CoverageTable]:
    """Returns the numbers that the verdict has for each of several things, for example partitions."""
    tables = []
    for key, value in _coverage(run).items():
        if not _is_table(value):
            continue
        value = {name: _flat(row) for name, row in value.items()}
        columns = list(dict.fromkeys(column for row in value.values() for column in row))
        rows = [
            (str(name), [_number_text(row[column]) if column in row else "" for column in columns])
            for name, row in list(value.items())[:COVERAGE_ROWS_MAX]
        ]
        table = CoverageTable(
            name=str(key).replace("_", " "),
            columns=tuple(str(column).replace("_", " ") for column in columns),
            rows=tuple(rows),
            omitted=max(len(value) - COVERAGE_ROWS_MAX, 0),
        )
        is_wide = len(rows) <= COVERAGE_COLUMNS_MAX < len(columns)
        tables.append(table.transposed() if is_wide else table)
    return tables


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row with the numbers of its measures as columns; their series are in verdict.json only."""
    measures = row.get("measures")
    flat = {name: value for name, value in row.items() if name != "measures"}
    if isinstance(measures, Mapping):
        flat |= {
            name: value
            for name, value in measures.items()
            if not isinstance(value, Mapping | list) and value is not None
        }
    return flat


def _coverage(run: RunData) -> Mapping[str, Any]:
    coverage = (run.verdict or {}).get("coverage", {})
    return coverage if isinstance(coverage, Mapping) else {}


def _is_table(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and bool(value)
        and all(isinstance(row, Mapping) for row in value.values())
    )


def _number_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}"
    if isinstance(value, Mapping):
        return details_text(value)
    if isinstance(value, list):
        shown = ", ".join(str(item) for item in value[:LIST_MAX]) or "none"
        return shown if len(value) <= LIST_MAX else f"{shown} and {len(value) - LIST_MAX} more"
    return str(value)


def _integer(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _shortened(details: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(str(key).replace("_", " "), _number_text(value)) for key, value in details.items()]


def _raw(data: Any) -> str:
    """Returns data as JSON, for those who want to see what was recorded."""
    text = json.dumps(data, sort_keys=True, ensure_ascii=False, default=str)
    return text if len(text) <= RAW_MAX else f"{text[:RAW_MAX]} ... (verdict.json has all)"


def _story_kinds(story: Story) -> list[tuple[str, int]]:
    counts = Counter(entry.kind for entry in story.entries)
    return [(kind, counts[kind]) for kind in STORY_KINDS if counts[kind]]


def _figures(
    run: RunData, story: Story, arguments: Sequence[Argument]
) -> list[tuple[str, Markup, int]]:
    """Returns name, lanes and the number of records lost at an unknown time, of the partitions to draw."""
    losses: dict[tuple[str, int], list[Loss]] = {}
    for loss in story.losses:
        losses.setdefault((loss.topic, loss.partition), []).append(loss)
    forbidden = [one for one in arguments if one.is_forbidden]
    broken = {(one.topic, one.partition) for one in forbidden}
    suspect = {(one.topic, one.partition) for one in arguments}
    places = sorted(
        run.partitions,
        key=lambda place: (place not in broken, place not in losses, place not in suspect, place),
    )
    return [
        (
            place_name(*place),
            partition_figure(
                run,
                *place,
                losses.get(place, ()),
                [one for one in forbidden if (one.topic, one.partition) == place],
            ),
            sum(len(loss.records) for loss in losses.get(place, ()) if loss.at_ns is None),
        )
        for place in places[:PARTITION_FIGURES_MAX]
    ]
