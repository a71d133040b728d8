"""Judges histories of transactions."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from checkers.kernels.evidence import seconds
from checkers.kernels.history import NONE
from checkers.kernels.transactions.columns import COMMITTED, Transactions, normalised
from checkers.kernels.transactions.cycles import SEARCH_STEPS_MAX, Cycle, CycleSearch, Step, kind_of
from checkers.kernels.transactions.edges import PROCESS, REALTIME, RW, WR, WW, Graph, graph_of
from checkers.kernels.transactions.found import Found, Words
from checkers.kernels.transactions.isolation import (
    KAFKA_READ_COMMITTED,
    SEPARATE_RULE,
    judged,
    needs_cycle_search,
    promised_snapshots,
    promises_read_committed,
    require_level,
    split_suffix,
)
from checkers.kernels.transactions.list_anomalies import list_anomalies
from checkers.kernels.transactions.lists import list_edges, list_history, unread_orders
from checkers.kernels.transactions.log_anomalies import log_anomalies
from checkers.kernels.transactions.log_closing import MayRepeat, closing_anomalies, input_anomalies
from checkers.kernels.transactions.log_sequences import sequence_anomalies
from checkers.kernels.transactions.logs import log_edges, log_history
from harness.contracts.checker import CheckerFinding, CheckerReport
from harness.contracts.verdict import Judgement

_NOTHING_TESTED = "no transaction depends on what another one read or wrote, so nothing was tested"
_NO_ORDER_FOUND = (
    "the order of appends that no read returned is not known, and with the orders that were tried snapshot "
    "isolation is broken"
)
_KIND_NAMES = {WW: "ww", WR: "wr", RW: "rw", PROCESS: "process", REALTIME: "realtime"}


def check_list_append(
    transactions: Transactions,
    *,
    promise: str = "strict-serializable",
    clock_error_ns: int = 0,
    search_steps_max: int = SEARCH_STEPS_MAX,
) -> CheckerReport:
    """Checks a history in which transactions append values to lists and read whole lists.

    Args:
        transactions: The history, in any order; micro-operations are appends and reads.
        promise: The isolation level that was promised, one of `isolation.levels()`. What it forbids makes the
            history invalid, everything else found is only reported.
        clock_error_ns: Largest difference between two clocks that stamped transactions.
        search_steps_max: Budget of the search; where it ends, a reason says what is unknown.

    Returns:
        Findings, reasons why more may be wrong, and counts. `isolation.levels_held` reads levels from it.

    Raises:
        HistoryError: The columns contradict each other, or one value was appended twice to one key.
        UsageError: The promise is no known level.
    """
    require_level(promise)
    t = normalised(transactions)
    words = Words(t)
    history = list_history(t, is_read_committed=promises_read_committed(promise))
    found = list_anomalies(history, words)
    edges, reasons = list_edges(history)
    orders = unread_orders(history) if promised_snapshots(promise) is not None else []
    graph = graph_of(t, history.is_node, edges, clock_error_ns)
    return report_of(
        t,
        graph,
        found,
        reasons,
        CycleSearch(graph, search_steps_max=search_steps_max),
        promise,
        words,
        (graph_of(t, history.is_node, [*edges, order], clock_error_ns) for order in orders),
    )


def check_log_transactions(
    transactions: Transactions,
    *,
    promise: str = KAFKA_READ_COMMITTED,
    clock_error_ns: int = 0,
    search_steps_max: int = SEARCH_STEPS_MAX,
) -> CheckerReport:
    """Checks a history in which transactions send records to partitions, poll them and commit consumer positions.

    Args:
        transactions: The history, in any order.
        promise: What was promised, one of `isolation.levels()`; `KAFKA_READ_UNCOMMITTED` states that consumers
            receive records before their transaction ends.
        clock_error_ns: Largest difference between two clocks that stamped transactions.
        search_steps_max: Budget of the search; where it ends, a reason says what is unknown, unless the promise is
            one of Kafka's.

    Returns:
        Findings, reasons why more may be wrong, and counts.

    Raises:
        HistoryError: The columns contradict each other, or one value was sent twice to one partition.
        UsageError: The promise is no known level.
    """
    require_level(promise)
    t = normalised(transactions)
    words = Words(t)
    is_read_committed = promises_read_committed(promise)
    history = log_history(t, is_read_committed=is_read_committed)
    found = log_anomalies(
        history, words, is_read_committed=is_read_committed, clock_error_ns=clock_error_ns
    )
    found += sequence_anomalies(history, words, is_read_committed=is_read_committed)
    closing, reasons = closing_anomalies(history, words, clock_error_ns)
    found += [*closing, *input_anomalies(history, words, clock_error_ns)]
    graph = graph_of(t, history.is_node, log_edges(history), clock_error_ns)
    search = CycleSearch(graph, with_circular_reads=True, search_steps_max=search_steps_max)
    return report_of(t, graph, found, reasons, search, promise, words)


def check_inputs(
    transactions: Transactions, *, clock_error_ns: int = 0, may_repeat: MayRepeat | None = None
) -> tuple[CheckerFinding, ...]:
    """Checks what consumer groups consumed, whatever the isolation levels of their members.

    Args:
        transactions: The history, in any order. Only those count as committed whose outcome says so.
        clock_error_ns: Largest difference between two clocks that stamped transactions.
        may_repeat: Which inputs may have been processed twice although no promise was broken; none without it.

    Raises:
        HistoryError: The columns contradict each other, or one value was sent twice to one partition.
    """
    t = normalised(transactions)
    words = Words(t)
    history = log_history(t, is_read_committed=False)
    found = input_anomalies(history, words, clock_error_ns, may_repeat)
    return tuple(judged(one, KAFKA_READ_COMMITTED, words) for one in found)


def report_of(
    t: Transactions,
    graph: Graph,
    found: list[Found],
    reasons: tuple[str, ...],
    search: CycleSearch,
    promise: str,
    words: Words,
    possible_graphs: Iterable[Graph] = (),
) -> CheckerReport:
    """Returns what was found, with the cycles, judged and counted.

    `possible_graphs` are the graph with some of the orders in which appends that no read returned may have
    happened, none if there are no two of one key. They are made only if they are needed.
    """
    cycles = search.report()
    found = [*found, *(_cycle(graph, cycle, t, words) for cycle in cycles.cycles)]
    kinds = Counter(graph.edges.kind.tolist())
    if not found and not (kinds[WW] or kinds[WR] or kinds[RW]):
        reasons = (*reasons, _NOTHING_TESTED)
    coverage = {
        "transactions": t.count,
        "transactions_committed": int((t.outcome == COMMITTED).sum()),
        "transactions_proven": int((graph.is_node & (t.outcome != COMMITTED)).sum()),
        "micro_operations": len(t.op_kind),
        "transactions_in_cycles": cycles.transactions,
        **{f"dependencies_{_KIND_NAMES[kind]}": kinds[kind] for kind in (WW, WR, RW, PROCESS)},
    }
    if needs_cycle_search(promise):
        reasons = (*reasons, *cycles.unknown_reasons)
    findings = tuple(judged(item, promise, words) for item in found)
    strength = promised_snapshots(promise)
    is_g2 = [split_suffix(one.id)[0] == "G2-item" for one in findings]
    kinds_of_cycles = {cycle.id for cycle in cycles.cycles}
    # Another forbidden cycle may be what breaks it, and all of these be write skews.
    is_explained = any(
        one.judgement is Judgement.FORBIDDEN and one.id in kinds_of_cycles for one in findings
    )
    if strength is not None and any(is_g2) and not is_explained:
        if search.breaks_snapshots(strength):
            findings = tuple(
                replace(one, judgement=Judgement.FORBIDDEN, rule=SEPARATE_RULE) if is_item else one
                for one, is_item in zip(findings, is_g2, strict=True)
            )
        else:
            is_broken = [CycleSearch(one).breaks_snapshots(strength) for one in possible_graphs]
            if is_broken and all(is_broken):
                reasons = (*reasons, _NO_ORDER_FOUND)
    return CheckerReport(
        findings=findings,
        unknown_reasons=reasons,
        coverage=coverage,
    )


def _cycle(graph: Graph, cycle: Cycle, t: Transactions, words: Words) -> Found:
    texts = [_step(graph, step, t, words) for step in cycle.steps]
    members = tuple(step.source for step in cycle.steps)
    names = ", ".join(words.name(member) for member in members)
    return Found(
        id=cycle.id,
        count=cycle.count,
        sentence=f"{names} each come before the next one and the last one before the first: {'; '.join(texts)}",
        transactions=members,
        details={
            "cycle": [
                {
                    "from": int(t.id[step.source]),
                    "to": int(t.id[step.target]),
                    "kind": _KIND_NAMES[kind_of(graph.edges, step)],
                    "text": text,
                }
                for step, text in zip(cycle.steps, texts, strict=True)
            ],
            "is_smallest": cycle.is_smallest,
        },
    )


def _step(graph: Graph, step: Step, t: Transactions, words: Words) -> str:
    """Returns why one transaction of a cycle comes before the next one."""
    one, other = words.name(step.source), words.name(step.target)
    kind = kind_of(graph.edges, step)
    if kind == REALTIME:
        return (
            f"{one} was complete at {seconds(int(t.completed_ns[step.source]))}, before {other} was invoked at"
            f" {seconds(int(t.invoked_ns[step.target]))}"
        )
    if kind == PROCESS:
        return f"process {int(t.process[step.source])} ran {one} before {other}"
    edges = graph.edges
    key = words.key(int(edges.key[step.edge]))
    before, after = int(edges.before[step.edge]), int(edges.after[step.edge])
    if kind == WW:
        return (
            f"{one} wrote {words.value(before)} to {key}, before {other} wrote {words.value(after)}"
        )
    if kind == WR:
        return f"{other} read {key} at {words.value(before)}, which {one} wrote"
    version = "empty" if before == NONE else f"at {words.value(before)}"
    return f"{one} read {key} {version}, before {other} wrote {words.value(after)}"
