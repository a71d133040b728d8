"""Runs the schedules of several defects, each in a process of its own."""

import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from harness.contracts.progress import ProgressDisplay
from harness.defects.check import Checked, check_defect
from harness.defects.table import GROUP_FAULTS
from harness.errors import UsageError
from system_under_test.defects import DEFECTS, Defect, find_defect


def chosen_defects(names: Sequence[str]) -> list[Defect]:
    """Returns the named defects, or all, in the order of the table.

    Args:
        names: Identifiers ("B-18") or names ("hw-not-gated"); none for all.

    Raises:
        UsageError: There is no such defect.
    """
    try:
        chosen = {find_defect(name).id for name in names}
    except ValueError as error:
        raise UsageError(f"{error}; see `laststand defects`") from None
    return [defect for defect in DEFECTS.values() if not names or defect.id in chosen]


def run_all(identifiers: Sequence[str], jobs: int, progress: ProgressDisplay) -> Iterator[Checked]:
    """Yields what each schedule showed, in the order of the identifiers.

    Args:
        identifiers: Of defects.
        jobs: How many run at a time.
        progress: Told how many are done.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["harness.defects.check"])
    workers = min(jobs, len(identifiers))
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_leave_signals_to_parent)
    try:
        # What takes longest comes first.
        order = sorted(identifiers, key=lambda one: one not in GROUP_FAULTS)
        futures = {pool.submit(check_defect, one): one for one in order}
        done = {}
        for future in as_completed(futures):
            done[futures[future]] = future.result()
            progress.update("defects", len(done) / len(futures), futures[future])
        for identifier in identifiers:
            yield done[identifier]
    finally:
        pool.shutdown(cancel_futures=True)


def _leave_signals_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
