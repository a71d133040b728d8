"""Which findings of a night are new, open, known or resolved, compared with earlier nights and the known failures.

- *known*: an entry of the known failures has the signature and has not expired. It does not fail the night.
- *open*: an earlier night found it too, and no valid entry lists it.
- *new*: no earlier night found it, or it was resolved and came back.
- *resolved*: it has not occurred for N nights. A night counts only if a job that once found it judged a run; a
  night that never tried shows nothing. It is reported in the night in which it becomes resolved, and as long as
  an entry of the known failures still lists it.

New and open findings fail the night: otherwise a bug would turn a night red once, and every later night green.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from harness import exit_codes
from harness.campaigns.known_failures import KnownFailure
from harness.campaigns.night_summary import Group, JobSummary, NightSummary
from harness.campaigns.night_tables import PastNight
from harness.campaigns.signature import HARNESS_ERROR

NEW, OPEN, KNOWN = "new", "open", "known"

RESOLVED_AFTER_NIGHTS = 3
"""A random search finds a rare bug in some nights only; three nights without it are a first sign, not a proof."""

PAST_NIGHTS_MAX = 60
"""How many earlier nights are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Triaged:
    """One finding of the night.

    Attributes:
        group: Its runs.
        status: NEW, OPEN or KNOWN.
        first_night, nights: The first night that found it, and how many did, this one included.
        known: The entry that lists it, also if it has expired.
        note: What else to know, for example that it came back; usually empty.
    """

    group: Group
    status: str
    first_night: str
    nights: int
    known: KnownFailure | None = None
    note: str = ""

    @property
    def fails(self) -> bool:
        """Whether it fails the night."""
        return self.status != KNOWN

    @property
    def is_harness_error(self) -> bool:
        """Whether the harness failed, and not the system under test."""
        return self.group.parts.get("what") == HARNESS_ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """A finding of earlier nights, or a known failure, that this night did not find.

    Attributes:
        signature, title, jobs: What earlier nights stored; the title of a known failure that was never found is
            its reason.
        last_night: The last night that found it; empty if none did.
        nights_without: Nights since then in which it could have been found.
        known: The entry that lists it.
    """

    signature: str
    title: str
    jobs: tuple[str, ...]
    last_night: str
    nights_without: int
    known: KnownFailure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Triage:
    """The findings of a night against what was known before.

    Attributes:
        findings: Those of the night: new, open, known; within one status those of most runs first.
        resolved: Findings that are gone.
        absent: Findings that may be gone: not found this night, but not yet for long enough.
        expired: Entries of the known failures that have expired.
    """

    findings: tuple[Triaged, ...]
    resolved: tuple[Absent, ...]
    absent: tuple[Absent, ...]
    expired: tuple[KnownFailure, ...]

    @property
    def statuses(self) -> dict[str, str]:
        """The status of every finding by its signature."""
        return {finding.group.signature: finding.status for finding in self.findings}


def triage_night(
    summary: NightSummary,
    past: Sequence[PastNight],
    known: Mapping[str, KnownFailure],
    *,
    resolved_after: int = RESOLVED_AFTER_NIGHTS,
) -> Triage:
    """Compares a night with earlier ones.

    Args:
        summary: The night, counted.
        past: Earlier nights, oldest first.
        known: The known failures by signature.
        resolved_after: After how many nights without it a finding is resolved.
    """
    today = date.fromisoformat(summary.plan.night[:10])
    findings = [
        _triaged(group, summary.plan.night, past, known, today, resolved_after)
        for group in summary.groups.values()
    ]
    order = (NEW, OPEN, KNOWN)
    findings.sort(
        key=lambda f: (order.index(f.status), -sum(f.group.runs.values()), f.group.signature)
    )
    seen = [row["signature"] for night in past for row in night.findings]
    missing = [name for name in dict.fromkeys([*known, *seen]) if name not in summary.groups]
    tonight = frozenset(name for name, job in summary.jobs.items() if not job.shows_nothing)
    absent = [_absent(name, past, known.get(name), tonight) for name in sorted(missing)]
    return Triage(
        findings=tuple(findings),
        resolved=tuple(one for one, can in absent if _is_resolved(one, can, resolved_after, today)),
        absent=tuple(one for one, _ in absent if 0 < one.nights_without < resolved_after),
        expired=tuple(entry for entry in known.values() if entry.is_expired(today)),
    )


def exit_code_of(summary: NightSummary, triage: Triage) -> int:
    """Returns the exit code of a night.

    255 if the harness failed or a simulated run did not repeat, 1 if a finding is new or open, 2 if a job is
    unknown, otherwise 0.
    """
    failing = [finding for finding in triage.findings if finding.fails]
    if any(job.nondeterministic for job in summary.jobs.values()):
        return exit_codes.FAILURE
    if any(finding.is_harness_error for finding in failing):
        return exit_codes.FAILURE
    if failing:
        return exit_codes.INVALID
    if unknown_jobs(summary.jobs):
        return exit_codes.UNKNOWN
    return exit_codes.VALID


def unknown_jobs(jobs: Mapping[str, JobSummary]) -> list[str]:
    """Returns the names of the jobs that are unknown as a whole."""
    return [name for name, job in jobs.items() if job.unknown_reasons]


def _triaged(
    group: Group,
    night: str,
    past: Sequence[PastNight],
    known: Mapping[str, KnownFailure],
    today: date,
    resolved_after: int,
) -> Triaged:
    with_it = [one.night for one in past if _has(one, group.signature)]
    entry = known.get(group.signature)
    note = ""
    if with_it:
        quiet = _nights_without(past, group.signature, group.runs)
        status = NEW if quiet >= resolved_after else OPEN
        if status == NEW:
            note = f"came back: last found in the night {with_it[-1]}"
    else:
        status = NEW
    if entry is not None and entry.is_expired(today):
        note = "; ".join(filter(None, [note, f"its known failure expired on {entry.expiry}"]))
    elif entry is not None:
        status, note = KNOWN, ""
    return Triaged(
        group=group,
        status=status,
        first_night=with_it[0] if with_it else night,
        nights=len(with_it) + 1,
        known=entry,
        note=note,
    )


def _absent(
    signature: str,
    past: Sequence[PastNight],
    entry: KnownFailure | None,
    tonight: Collection[str],
) -> tuple[Absent, bool]:
    """Returns a finding that this night lacks, and whether this night could have found it."""
    rows = [row for night in past for row in night.findings if row["signature"] == signature]
    jobs = sorted({row["job"] for row in rows})
    could = bool(set(jobs) & set(tonight)) if jobs else bool(tonight)
    last = [night.night for night in past if _has(night, signature)][-1:]
    return Absent(
        signature=signature,
        title=str(rows[-1]["title"]) if rows else entry.reason if entry else "",
        jobs=tuple(jobs),
        last_night=last[0] if last else "",
        nights_without=_nights_without(past, signature, jobs) + could,
        known=entry,
    ), could


def _is_resolved(one: Absent, could_be_found: bool, resolved_after: int, today: date) -> bool:
    if one.known is not None and not one.known.is_expired(today):
        return one.nights_without >= resolved_after
    return could_be_found and one.nights_without == resolved_after


def _nights_without(past: Sequence[PastNight], signature: str, jobs: Collection[str]) -> int:
    """Returns in how many of the last nights the jobs (any jobs if there are none) did not find it."""
    count = 0
    for night in reversed(past):
        if _has(night, signature):
            break
        count += any(
            row["valid"] + row["invalid"] > 0
            for row in night.jobs
            if not jobs or row["job"] in jobs
        )
    return count


def _has(night: PastNight, signature: str) -> bool:
    return any(row["signature"] == signature for row in night.findings)


def counts_by_status(triage: Triage) -> dict[str, Any]:
    """Returns how many findings have each status, and how many are resolved."""
    statuses = [finding.status for finding in triage.findings]
    counts = {status: statuses.count(status) for status in (NEW, OPEN, KNOWN)}
    return {**counts, "resolved": len(triage.resolved)}
