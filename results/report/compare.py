"""The report of a comparison: two (or more) arms, the same seeds, side by side."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from harness.errors import HistoryError
from results.report.build import environment, write_text
from results.report.svg import element, joined, ticks, titled

DISCORDANT_MAX = 200
"""Discordant seeds that the page lists; more of them show nothing new."""

SIGNIFICANT = 0.05
"""Below this p-value the page states that the arms differ."""

NAME_MAX = 22
"""Characters of an arm's name that fit beside a figure."""

POINTS_MAX = 20
"""Points of the coverage over runs that the page lists."""

_ROUNDING = 1e-9
_OTHERS = ("invalid", "unknown", "errors", "violations")
_FACTS = ("system", "profile", "eligible leader replicas", "environment", "times multiplied by")
_WIDTH, _LEFT, _RIGHT, _ROW = 640, 150, 70, 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One arm of a comparison.

    Attributes:
        name: What was varied, for example "profile=kafka-4.1".
        runs: How many runs were judged.
        runs_with_loss: In how many at least one acknowledged record was lost without an excuse.
        low: Lower end of the 95 % Wilson interval of that rate.
        high: Its upper end.
        unexcused_lost_records: Sum over the runs.
        unavailable_ms_median: Median time without a leader; None if not measured.
        others: Further counts (invalid, unknown, errors), as far as the result has them.
        facts: What ran and where, as far as the result has it: names and values.
        unknown_reasons: Why the runs of the arm are unknown as a whole, one sentence each.
        unknown_command: Repeats the first run that is unknown for a reason of its own; empty if none is.
    """

    name: str
    runs: int
    runs_with_loss: int
    low: float
    high: float
    unexcused_lost_records: int
    unavailable_ms_median: float | None
    others: Mapping[str, int]
    facts: Mapping[str, str]
    unknown_reasons: tuple[str, ...] = ()
    unknown_command: str = ""

    @property
    def rate(self) -> float:
        """Returns the share of runs with a loss."""
        return self.runs_with_loss / self.runs if self.runs else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscordantSeed:
    """One seed on which the arms differ: (arm, lost records) pairs, and commands to see it again."""

    seed: str
    losses: tuple[tuple[str, str], ...]
    commands: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One arm compared with the first one, seed by seed.

    Attributes:
        name: Of the arm.
        pairs: Seeds of which both runs were judged.
        only_first: Seeds on which only the first arm lost records.
        only_second: Seeds on which only this arm did.
        p_value: Of McNemar's exact test.
        adjusted_p: The same, adjusted for the number of comparisons.
    """

    name: str
    pairs: int
    only_first: int
    only_second: int
    p_value: float
    adjusted_p: float


def _guided(data: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Returns the numbers of a guided swarm, with at most `POINTS_MAX` points of its coverage over runs."""
    if data is None:
        return None
    curve, generation = data["curve"], data["generation"]
    step = max(1, math.ceil(len(curve) / POINTS_MAX))
    total = data["drawn"]["runs"] + data["mutants"]["runs"]
    shown = sorted({*range(0, len(curve), step), len(curve) - 1} if curve else ())
    points = [
        {"runs": min((index + 1) * generation, total), "features": curve[index]} for index in shown
    ]
    return {**data, "points": points}


def build_compare_report(path: Path, result: Mapping[str, Any]) -> Path:
    """Writes the report of a comparison, or of a swarm (which has one arm).

    Args:
        path: The HTML file to write; its folder is made when missing.
        result: See *Shape*.

    Returns:
        The path.

    Raises:
        HistoryError: The result lacks a key or has the wrong type; the message names it.

    Shape:
        arms: list of {name, runs, runs_with_unexcused_loss, loss_rate_interval (low, high: 95 %, shares),
        unexcused_lost_records, unavailable_ms_median (or null), and optionally invalid, unknown, errors,
        violations, unknown_reasons (sentences), unknown_command,
        system, version, profile, elr, on, time_scale}, the one that others are compared with first.
        title, experiment (a name, or a table that has one), vary, command: str, optional.
        mcnemar_p: float or null, optional; of the first two arms.
        comparisons: optional list of {arms (two names), pairs, only_first, only_second, mcnemar_p, adjusted_p}.
        same_schedules: bool, optional; whether every arm had the same faults for the same seed.
        discordant: optional list of seeds, or of {seed, losses: {arm: lost records}, commands: {arm: command},
        or command}.
        guided: optional numbers of a guided swarm (`harness.campaigns.guided.campaign`).
        attention: optional list of {seed, arm, reason, command, report}: runs to inspect; the path of a run's
        report, relative to this page, is "" for runs that are not stored.
    """
    try:
        arms = [_arm(data) for data in result["arms"]]
        comparisons = [_comparison(data) for data in result.get("comparisons") or ()]
        discordant = [_discordant(data) for data in result.get("discordant") or ()]
        attention = [
            {key: str(data[key]) for key in ("seed", "arm", "reason", "command")}
            | {"report": quote(str(data.get("report", "")))}
            for data in result.get("attention") or ()
        ]
        p_value = result.get("mcnemar_p")
        p_value = None if p_value is None else float(p_value)
    except KeyError as error:
        raise HistoryError(f"the result of the comparison has no key {error}") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise HistoryError(f"the result of the comparison cannot be shown: {error}") from None
    if not arms:
        raise HistoryError("the result of the comparison has no arms")
    text = (
        environment()
        .get_template("compare.html")
        .render(
            title=str(result.get("title") or ("Comparison" if len(arms) > 1 else "Swarm")),
            experiment=_experiment_name(result.get("experiment", "")),
            vary=str(result.get("vary", "")),
            verdict=_verdict(arms[0]) if len(arms) == 1 else "",
            command=str(result.get("command", "")),
            guided=_guided(result.get("guided")),
            arms=arms,
            facts=[name for name in _FACTS if any(arm.facts.get(name) for arm in arms)],
            others=[name for name in _OTHERS if any(name in arm.others for arm in arms)],
            sentence=_sentence(arms, p_value, comparisons),
            comparisons=comparisons,
            same_schedules=result.get("same_schedules"),
            p_value=p_value,
            rates=_rate_figure(arms),
            losses=_bar_figure(
                "unexcused lost records", [(a.name, a.unexcused_lost_records) for a in arms]
            ),
            unavailable=_bar_figure(
                "median unavailable ms", [(arm.name, arm.unavailable_ms_median) for arm in arms]
            ),
            discordant=discordant[:DISCORDANT_MAX],
            discordant_omitted=max(len(discordant) - DISCORDANT_MAX, 0),
            attention=attention[:DISCORDANT_MAX],
            attention_omitted=max(len(attention) - DISCORDANT_MAX, 0),
        )
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
    return path


def _verdict(arm: Arm) -> str:
    """Returns the verdict on a swarm; empty if a run ended in an error, or if the verdicts are not counted."""
    if arm.others.get("errors") or "invalid" not in arm.others:
        return ""
    if arm.others["invalid"]:
        return "invalid"
    return "unknown" if arm.unknown_reasons else "valid"


def _experiment_name(experiment: Any) -> str:
    return str(experiment.get("name", "") if isinstance(experiment, Mapping) else experiment)


def _arm(data: Mapping[str, Any]) -> Arm:
    low, high = data["loss_rate_interval"]
    unavailable = data["unavailable_ms_median"]
    arm = Arm(
        name=str(data["name"]),
        runs=int(data["runs"]),
        runs_with_loss=int(data["runs_with_unexcused_loss"]),
        low=float(low),
        high=float(high),
        unexcused_lost_records=int(data["unexcused_lost_records"]),
        unavailable_ms_median=_measured(unavailable),
        others={name: int(data[name]) for name in _OTHERS if data.get(name) is not None},
        facts=_facts(data),
        unknown_reasons=tuple(map(str, data.get("unknown_reasons", ()))),
        unknown_command=str(data.get("unknown_command", "")),
    )
    # The interval was computed elsewhere: a rounding error is accepted, a wrong count is not.
    if arm.runs and not arm.low - _ROUNDING <= arm.rate <= arm.high + _ROUNDING:
        raise ValueError(
            f"{arm.runs_with_loss} of {arm.runs} runs do not fit the interval {low} to {high}"
        )
    return arm


def _facts(data: Mapping[str, Any]) -> dict[str, str]:
    elr, scale = data.get("elr"), data.get("time_scale", 1)
    return {
        "system": f"{data.get('system', '')} {data.get('version', '')}".strip(),
        "profile": str(data.get("profile", "")),
        "eligible leader replicas": "" if elr is None else "on" if elr else "off",
        "environment": str(data.get("on", "")),
        "times multiplied by": "" if scale == 1 else f"{scale:g}",
    }


def _measured(value: Any) -> float | None:
    """Returns a number, or None for null and not-a-number (the median of nothing)."""
    number = math.nan if value is None else float(value)
    return None if math.isnan(number) else number


def _comparison(data: Mapping[str, Any]) -> Comparison:
    return Comparison(
        name=str(data["arms"][1]),
        pairs=int(data["pairs"]),
        only_first=int(data["only_first"]),
        only_second=int(data["only_second"]),
        p_value=float(data["mcnemar_p"]),
        adjusted_p=float(data["adjusted_p"]),
    )


def _discordant(data: Any) -> DiscordantSeed:
    if not isinstance(data, Mapping):
        return DiscordantSeed(seed=str(data), losses=(), commands=())
    losses = data.get("losses") or {}
    commands = data.get("commands") or {}
    if not commands and data.get("command"):
        commands = {"": data["command"]}
    return DiscordantSeed(
        seed=str(data["seed"]),
        losses=tuple((str(name), str(lost)) for name, lost in losses.items()),
        commands=tuple((str(name), str(text)) for name, text in commands.items()),
    )


def _sentence(arms: Sequence[Arm], p_value: float | None, comparisons: Sequence[Comparison]) -> str:
    parts = [
        f"{arm.name} lost acknowledged records in {arm.runs_with_loss:,} of {arm.runs:,} runs"
        for arm in arms
    ]
    sentence = "; ".join(parts) + "."
    if p_value is None or len(arms) < 2:
        return sentence
    if len(comparisons) > 1:
        differing = [one.name for one in comparisons if one.adjusted_p < SIGNIFICANT]
        if not differing:
            return f"{sentence} Chance alone can explain every difference from {arms[0].name}."
        return f"{sentence} On the same seeds {', '.join(differing)} differ from {arms[0].name}."
    if p_value < SIGNIFICANT:
        return f"{sentence} On the same seeds the first two arms differ (p = {p_value:.2g})."
    return f"{sentence} Chance alone can explain the difference (p = {p_value:.2g})."


def _rate_figure(arms: Sequence[Arm]) -> Markup:
    high = min(1.0, max(max(arm.high for arm in arms) * 1.1, 0.001))
    bottom = 10 + _ROW * len(arms)

    def x(rate: float) -> float:
        return _LEFT + rate / high * (_WIDTH - _LEFT - _RIGHT)

    parts = []
    for tick in ticks(0, high, 6):
        parts.append(element("line", class_="grid", x1=x(tick), x2=x(tick), y1=4, y2=bottom))
        label = f"{tick * 100:g} %"
        parts.append(
            element("text", label, class_="tick", x=x(tick), y=bottom + 15, text_anchor="middle")
        )
    for index, arm in enumerate(arms):
        y = 10 + index * _ROW + _ROW / 2
        title = (
            f"{arm.name}: {arm.rate * 100:.3g} % of runs lost records "
            f"(95 %: {arm.low * 100:.3g} to {arm.high * 100:.3g} %)"
        )
        colour = f"c{index % 8}"
        parts.append(_name(arm.name, y))
        parts.append(
            titled(
                "line",
                title,
                class_=f"interval {colour}",
                x1=x(arm.low),
                x2=x(arm.high),
                y1=y,
                y2=y,
            )
        )
        parts.extend(
            element("line", class_=f"interval {colour}", x1=x(end), x2=x(end), y1=y - 6, y2=y + 6)
            for end in (arm.low, arm.high)
        )
        parts.append(titled("circle", title, class_=f"dot {colour}", cx=x(arm.rate), cy=y, r=6))
    return _figure(joined(parts), bottom + 24, "share of runs with unexcused loss")


def _bar_figure(name: str, values: Sequence[tuple[str, float | None]]) -> Markup:
    known = [(arm, float(value)) for arm, value in values if value is not None]
    if not known:
        return Markup("")
    high = max(max(value for _, value in known), 1.0)
    parts = []
    for index, (arm, value) in enumerate(known):
        top = 8 + index * 34
        width = value / high * (_WIDTH - _LEFT - _RIGHT)
        parts.append(_name(arm, top + 12))
        parts.append(
            titled(
                "rect",
                f"{arm}: {value:,.6g}",
                class_=f"fill c{index % 8}",
                x=_LEFT,
                y=top,
                width=max(width, 1.0),
                height=22,
                rx=3,
            )
        )
        parts.append(element("text", f"{value:,.0f}", x=_LEFT + max(width, 1.0) + 6, y=top + 15))
    return _figure(joined(parts), 12 + 34 * len(known), name)


def _name(text: str, y: float) -> Markup:
    content = Markup("{}{}").format(_short(text), element("title", text))
    return element("text", content, class_="lane", x=2, y=y + 4)


def _short(name: str) -> str:
    """Returns an arm's name as it fits beside a figure: without its key if need be, and its end in any case."""
    if len(name) <= NAME_MAX:
        return name
    value = name.partition("=")[2] or name
    return value if len(value) <= NAME_MAX else "…" + value[-(NAME_MAX - 1) :]


def _figure(body: Markup, height: float, name: str) -> Markup:
    return element(
        "svg",
        element("title", name) + body,
        viewBox=f"0 0 {_WIDTH} {height:g}",
        class_="chart fits",
        role="img",
    )
