"""`laststand list`: lists the stored runs and campaigns."""

import argparse
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from harness import exit_codes
from harness.cli.options import Subcommands, add_command, join_names, positive_number
from harness.cli.output import print_json, show
from harness.cli.runs import open_store
from results.layout import parse_stamp

if TYPE_CHECKING:
    from rich.console import RenderableType

    from harness.campaigns.listing import CampaignEntry
    from results.store import RunEntry

VERDICTS = ("valid", "invalid", "unknown", "error", "unchecked", "unfinished", "unreadable")
_AGES = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def add_parser(commands: Subcommands) -> None:
    """Adds the command."""
    parser = add_command(
        commands, "list", list_runs, "list the stored runs and campaigns, newest first"
    )
    parser.add_argument(
        "--verdict",
        choices=VERDICTS,
        metavar="VERDICT",
        help=f"show only those with this verdict: {join_names(VERDICTS)}",
    )
    parser.add_argument(
        "--since",
        type=since,
        metavar="WHEN",
        help="show only those that began since then: 30m, 12h, 2d, 1w, or an ISO date such as 2026-01-31 (UTC)",
    )
    parser.add_argument(
        "--profile",
        metavar="NAME",
        help="show only those of this profile; 'drawn': campaigns in which every seed draws its own",
    )
    parser.add_argument("--system", metavar="NAME", help="show only those of this system")
    parser.add_argument("--world", metavar="WORLD", help="show only those that ran in this world")
    parser.add_argument(
        "--limit", type=positive_number, metavar="N", help="show only the newest N of each kind"
    )


def list_runs(options: argparse.Namespace) -> int:
    """Lists the stored runs and campaigns, newest first."""
    from harness.campaigns.listing import list_campaigns

    store = open_store(options)
    all_runs, all_campaigns = store.list(), list_campaigns(store.root)
    runs = [entry for entry in all_runs if _matches(options, _run_facts(entry))][: options.limit]
    campaigns = [entry for entry in all_campaigns if _matches(options, _campaign_facts(entry))]
    campaigns = campaigns[: options.limit]
    if options.json:
        print_json(
            {
                "runs": [_run_json(entry) for entry in runs],
                "campaigns": [_campaign_json(entry) for entry in campaigns],
            }
        )
    elif not all_runs and not all_campaigns:
        print(f"no runs in {options.results} yet; `laststand reproduce` makes one")
    elif not runs and not campaigns:
        print(
            f"nothing in {options.results} matches; there are {len(all_runs)} runs and "
            f"{len(all_campaigns)} campaigns"
        )
    else:
        show(*_parts(runs, campaigns))
    return exit_codes.VALID


def since(text: str, now: datetime | None = None) -> datetime:
    """Returns the moment of "2d" (two days ago) or of an ISO date or time; an argparse type."""
    age = re.fullmatch(r"(\d{1,6})([mhdw])", text)
    try:
        if age:
            return (now or datetime.now(UTC)) - timedelta(**{_AGES[age[2]]: int(age[1])})
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither an age such as 2d or 12h nor an ISO date such as 2026-01-31"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _matches(options: argparse.Namespace, facts: dict[str, set[str]]) -> bool:
    """Returns whether an entry has the requested verdict, time, profile, system and world."""
    for name in ("verdict", "profile", "system", "world"):
        wanted = getattr(options, name)
        if wanted is not None and wanted not in facts[name]:
            return False
    if options.since is None:
        return True
    (stamp,) = facts["stamp"]
    try:
        return bool(parse_stamp(stamp) >= options.since)
    except ValueError:
        return False


def _run_facts(entry: "RunEntry") -> dict[str, set[str]]:
    summary = entry.summary
    return {
        "verdict": {entry.verdict, "error"} if summary.get("error") else {entry.verdict},
        "profile": {str(summary.get("profile", ""))},
        "system": {str(summary.get("system", ""))},
        "world": {str(summary.get("on", ""))},
        "stamp": {entry.directory.name},
    }


def _campaign_facts(entry: "CampaignEntry") -> dict[str, set[str]]:
    return {
        "verdict": {entry.verdict},
        "profile": {arm.profile for arm in entry.arms},
        "system": {arm.system for arm in entry.arms},
        "world": {arm.world for arm in entry.arms},
        "stamp": {entry.started},
    }


def _run_json(entry: "RunEntry") -> dict[str, Any]:
    return {
        "run": entry.id,
        "seed": entry.seed,
        "verdict": entry.verdict,
        "profile": entry.summary.get("profile", ""),
        "system": entry.summary.get("system", ""),
        "world": entry.summary.get("on", ""),
        "drawn": entry.summary.get("drawn", {}),
        "unexcused_lost_records": entry.unexcused_lost_records,
    }


def _campaign_json(entry: "CampaignEntry") -> dict[str, Any]:
    return {
        "campaign": entry.name,
        "kind": entry.kind,
        "started": entry.started,
        "verdict": entry.verdict,
        "runs_done": entry.done,
        "runs_planned": entry.planned,
        "failing": entry.failing,
        "arms": [arm.name for arm in entry.arms],
    }


def _parts(runs: "list[RunEntry]", campaigns: "list[CampaignEntry]") -> "list[RenderableType]":
    from results.tables import line, table

    parts: list[RenderableType] = []
    if runs:
        rows = [
            (
                entry.verdict,
                str(entry.summary.get("profile", "")),
                str(entry.unexcused_lost_records),
                entry.id,
            )
            for entry in runs
        ]
        parts.append(table(("verdict", "profile", "lost", "run"), rows, right={"lost"}))
    if campaigns:
        rows = [
            (
                entry.verdict,
                str(entry.done) if entry.planned is None else f"{entry.done}/{entry.planned}",
                "-" if entry.failing is None else str(entry.failing),
                entry.name,
            )
            for entry in campaigns
        ]
        if parts:
            parts.append(line(""))
        names = ("verdict", "runs", "failing", "campaign")
        parts.append(table(names, rows, right={"runs", "failing"}))
    return parts
