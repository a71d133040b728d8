"""The search for a linearization: Wing and Gong's, with Lowe's just-in-time order, memoisation and dominance.

**Configurations.** The search goes from completion to completion. A configuration says what was linearized among
the operations that are pending there, and the state. An operation is linearized only when a completion forces one:
if the operation that completes is not linearized yet, some pending operations are, that operation last. Nothing is
lost by this, because every linearization can be delayed into this form.

**Observers** (operations that never change the state) are linearized at the first instant at which they are legal.
To move one there from a later place changes no state.

**Deferred operations** may still take effect, but do not have to. `info` operations are deferred from their
invocation on. An overwrite that is pending when another overwrite takes effect becomes deferred: it may have taken
effect immediately before, unseen. A deferred operation that completes is settled.

**Interchangeable operations** (equal signatures) are used in the order of their completions: exchanging two of
them changes no state and violates no order. `info` operations come last, in the order of their invocations.

**Dominance.** Of two configurations at one completion with one state, the first dominates if it can do whatever
the second can: it has linearized at least the observers of the second, used at most its `info` operations, and
differs otherwise only in operations that it has deferred. A dominated configuration is dropped.

**Foresight.** A model may recognise that a state cannot lead to the result of an observer that is still to come (a
text that can only grow, and does not begin like what was read later). Such a configuration is dropped, unless an
overwrite that can still take effect leads there.

**Order within a process.** Intervals do not show the order of two operations of one process if the one begins at
the time at which the other completes, and another process has such operations at the same time. The second one
waits until the first one is linearized. A linearization in a stricter order, which intervals show, is tried first.

Configurations are visited in the order of how far they came and, at one completion, of how few operations were
linearized without being forced. The order is fixed, so that the result depends on nothing but the operations and
the limits.

Source: Wing and Gong, "Testing and verifying concurrent objects" (1993); Lowe, "Testing for linearizability"
(2017). The treatment of overwrites and `info` operations, and dominance, go beyond both.
"""

import heapq
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

from checkers.models.calls import foresee, initial_state, step
from checkers.models.foresight import Foresight
from checkers.models.model import CanReach, Foreseeing, Model
from checkers.models.needs import Infos, Needs
from checkers.models.prepare import Level, Prepared
from harness.errors import UsageError

PARTIAL_MAX = 5
"""How many of the longest partial linearizations are kept."""

STRICTER_CONFIGURATIONS = 4_000
"""How long a linearization is looked for in a stricter order first."""

CLOCK_EVERY = 128
"""How many configurations are visited between two looks at the clock; about a millisecond."""

_IMPOSSIBLE = -1
_UNTRIED = -2


class Step(NamedTuple):
    """One operation that took effect, with everything before it.

    Attributes:
        before: The step before; None for the first one.
        position: The operation.
        state: Number of the state after it.
        level: At which completion it was linearized.
        is_settled: Whether this only notes that a deferred overwrite was overwritten unseen.
        length: How many operations took effect up to here.
    """

    before: "Step | None"
    position: int
    state: int
    level: int
    is_settled: bool
    length: int


class Configuration(NamedTuple):
    """One point of the search, just before a completion.

    Attributes:
        level: Which completion.
        state: Number of the state.
        done: Slots of pending operations that are linearized or deferred.
        deferred: Slots of the deferred ones among them.
        used: `info` operations that took effect.
        last: The last step.
        extra: How many operations were linearized before this completion without being forced.
    """

    level: int
    state: int
    done: int
    deferred: int
    used: int
    last: Step | None
    extra: int


@dataclass(slots=True)
class Budget:
    """What a search may use; shared by the objects of a history.

    Attributes:
        configurations_max: How many configurations may be visited; None for any number.
        deadline_s: When to stop, on the monotonic clock; None for never.
        configurations: How many were visited.
    """

    configurations_max: int | None = None
    deadline_s: float | None = None
    configurations: int = 0
    clock: Callable[[], float] = time.monotonic

    def is_exhausted(self) -> bool:
        """Returns whether the search must stop; called once for every configuration."""
        self.configurations += 1
        if self.configurations_max is not None and self.configurations > self.configurations_max:
            return True
        if self.deadline_s is None or self.configurations % CLOCK_EVERY:
            return False
        return self.clock() > self.deadline_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search found.

    Attributes:
        is_linearizable: True, False, or None if the budget was exhausted first.
        level: How many completions could be reached.
        orders: If it is linearizable, one order of all operations that take effect; otherwise the longest partial
            ones. Each is a sequence of (position, state after it).
    """

    is_linearizable: bool | None
    level: int
    orders: tuple[tuple[tuple[int, Hashable], ...], ...]


@dataclass(slots=True)
class Search:
    """One search, which can be interrupted and continued."""

    model: Model
    prepared: Prepared
    uses_foresight: bool = True
    states: list[Hashable] = field(default_factory=list)
    numbers: dict[Hashable, int] = field(default_factory=dict)
    transitions: list[dict[int, int]] = field(default_factory=list)
    visited: dict[tuple[int, int, int], list[tuple[int, int, int, int]]] = field(
        default_factory=dict
    )
    needs: Needs = field(init=False)
    legal: dict[tuple[int, int], int] = field(default_factory=dict)
    heap: list[tuple[int, int, int, bool, Configuration]] = field(default_factory=list)
    can_reach: CanReach | None = None
    within_reach: dict[tuple[int, int], bool] = field(default_factory=dict)
    foresight: Foresight = field(init=False)
    pushed: int = 0
    farthest: int = 0
    configurations: int = 0
    longest: list[Step | None] = field(default_factory=list)

    def run(self, budget: Budget) -> Found:
        """Searches until a linearization is found, none can exist, or the budget is exhausted.

        After the last case the next call continues where this one stopped.
        """
        done = None
        if not self.states and self.prepared.stricter is not None:
            found = self._in_stricter_order(self.prepared.stricter, budget)
            if found.is_linearizable:
                return found
        if not self.states:
            self.transitions = [{} for _ in self.prepared.samples]
            first = self._number(initial_state(self.model))
            self.needs = Needs(self.prepared, self._is_legal_after)
            if self.uses_foresight and isinstance(self.model, Foreseeing):
                self.can_reach = foresee(self.model, self.prepared.operations)
                self.foresight = Foresight(self.prepared, self._leads_to)
            done = self._push(Configuration(0, first, 0, 0, 0, None, 0))
        while done is None and self.heap:
            if budget.is_exhausted():
                return self._found(None)
            self.configurations += 1
            *_, is_direct, configuration = heapq.heappop(self.heap)
            done = self._direct(configuration) if is_direct else self._others(configuration)
        if done is None:
            return self._found(False)
        return Found(
            is_linearizable=True, level=len(self.prepared.levels), orders=(self._order(done.last),)
        )

    def _in_stricter_order(self, stricter: Prepared, budget: Budget) -> Found:
        search = Search(self.model, stricter, uses_foresight=self.uses_foresight)
        limits = [STRICTER_CONFIGURATIONS, budget.configurations_max]
        part = Budget(
            configurations_max=min(limit for limit in limits if limit is not None),
            deadline_s=budget.deadline_s,
        )
        found = search.run(part)
        self.configurations += search.configurations
        return found

    def _push(self, reached: Configuration) -> Configuration | None:
        """Goes on from a configuration as far as nothing has to be decided; returns it if that is the end."""
        while True:
            if reached.level == len(self.prepared.levels):
                return reached
            level = self.prepared.levels[reached.level]
            reached = self._observe(level, reached)
            if self.can_reach is not None and not self._is_promising(level, reached):
                return None
            if not self._is_new(level, reached):
                return None
            if level.target_bit & reached.done & ~reached.deferred:
                reached = _passed(level, reached)
                continue
            self._remember(reached)
            self._queue(reached, is_direct=True)
            return None

    def _queue(self, configuration: Configuration, *, is_direct: bool) -> None:
        self.pushed += 1
        priority = (-configuration.level, configuration.extra + (not is_direct), self.pushed)
        heapq.heappush(self.heap, (*priority, is_direct, configuration))

    def _direct(self, configuration: Configuration) -> Configuration | None:
        """Tries to pass the completion at once; other operations are tried later."""
        level = self.prepared.levels[configuration.level]
        self._queue(configuration, is_direct=False)
        if level.target_bit & configuration.deferred:
            return self._push(_passed(level, configuration))
        if level.target_bit & level.observer_mask:
            return None
        if self._is_early(configuration.level, configuration.done, level.target):
            return None
        signature = self.prepared.signature_of[level.target]
        return self._linearize(level, configuration, signature, level.target_bit, level.target)

    def _others(self, configuration: Configuration) -> Configuration | None:
        """Linearizes any one operation, so that the next one may become possible."""
        level = self.prepared.levels[configuration.level]
        plan = self.needs.plan(configuration.level)
        pending, usable = ~configuration.done, ~configuration.done | configuration.deferred
        for group in plan.groups:
            if not group.slots & usable:
                continue
            bit, position = next(member for member in group.members if member[0] & usable)
            if position == level.target:
                if not bit & configuration.deferred:
                    continue  # it was tried at once
            elif not group.noticed_now & pending:
                continue  # unseen, see `Needs`
            if self._is_early(configuration.level, configuration.done, position):
                continue
            end = self._linearize(level, configuration, group.signature, bit, position)
            if end is not None:
                return end
        for info in plan.infos:
            # An alike operation that must complete sooner is used first.
            if info.alike_slots & usable or not info.noticed_now & pending:
                continue
            end = self._use_first(level, configuration, info)
            if end is not None:
                return end
        return None

    def _use_first(
        self, level: Level, configuration: Configuration, info: Infos
    ) -> Configuration | None:
        """Uses the first of some alike `info` operations that is left."""
        for bit, position in info.members:
            is_early = self._is_early(configuration.level, configuration.done, position)
            if not bit & configuration.used and not is_early:
                return self._use_info(level, configuration, info.signature, bit, position)
        return None

    def _linearize(
        self, level: Level, configuration: Configuration, signature: int, bit: int, position: int
    ) -> Configuration | None:
        state = self._after(configuration.state, signature)
        if state == _IMPOSSIBLE:
            if bit & level.overwrite_mask:
                raise self._contradiction(position, "replace the whole state, but refuses it")
            return None
        done, deferred = configuration.done | bit, configuration.deferred & ~bit
        if bit & level.overwrite_mask:
            deferred |= level.overwrite_mask & ~done
            done |= deferred
        return self._push(
            Configuration(
                configuration.level,
                state,
                done,
                deferred,
                configuration.used,
                _next(configuration, position, state),
                configuration.extra + (position != level.target),
            )
        )

    def _use_info(
        self, level: Level, configuration: Configuration, signature: int, bit: int, position: int
    ) -> Configuration | None:
        state = self._after(configuration.state, signature)
        if state in (_IMPOSSIBLE, configuration.state):
            return None  # without an effect it is as good as dropped
        done, deferred = configuration.done, configuration.deferred
        if self.prepared.is_overwrite[position]:
            deferred |= level.overwrite_mask & ~done
            done |= deferred
        return self._push(
            Configuration(
                configuration.level,
                state,
                done,
                deferred,
                configuration.used | bit,
                _next(configuration, position, state),
                configuration.extra + 1,
            )
        )

    def _observe(self, level: Level, configuration: Configuration) -> Configuration:
        """Linearizes all pending observers that are legal."""
        key = (configuration.level, configuration.state)
        legal = self.legal.get(key)
        if legal is None:
            legal = self.legal[key] = self._legal(level, configuration.state)
        new = legal & ~configuration.done
        if not new:
            return configuration
        last, done = configuration.last, configuration.done
        is_any = True
        while is_any:
            is_any = False
            for bit, _, position in level.observers:
                if bit & new & ~done and not self._is_early(configuration.level, done, position):
                    length = last.length + 1 if last else 1
                    state = configuration.state
                    last = Step(last, position, state, configuration.level, False, length)
                    done |= bit
                    # Another observer of the same process may wait for this one.
                    is_any = configuration.level in self.prepared.waiting
        return configuration._replace(done=done, last=last)

    def _is_early(self, level: int, done: int, position: int) -> bool:
        """Returns whether another operation of the same process has to take effect before this one."""
        waiting = self.prepared.waiting.get(level)
        return waiting is not None and bool(waiting.get(position, 0) & ~done)

    def _is_promising(self, level: Level, configuration: Configuration) -> bool:
        """Returns whether the results of the pending observers, and of the next one, are within reach."""
        awaited = [one[1:] for one in level.observers if not one[0] & configuration.done]
        following = self.foresight.following(configuration.level)
        if following is not None:
            awaited.append(following)
        usable = ~configuration.done | configuration.deferred
        return all(
            self._is_within_reach(configuration.state, signature)
            or self.foresight.detours(configuration.level, signature, position) & usable
            for signature, position in awaited
        )

    def _is_within_reach(self, state: int, signature: int) -> bool:
        key = (state, signature)
        known = self.within_reach.get(key)
        if known is None:
            assert self.can_reach is not None
            known = self.can_reach(self.states[state], self.prepared.samples[signature])
            self.within_reach[key] = known
        return known

    def _leads_to(self, overwrite: int, signature: int) -> bool:
        return self._is_within_reach(self._after(0, overwrite), signature)

    def _legal(self, level: Level, state: int) -> int:
        """Returns the slots of the observers that are legal in a state."""
        legal = 0
        for bit, signature, position in level.observers:
            after = self._after(state, signature)
            if after >= 0:
                if after != state:
                    raise self._contradiction(position, "only observe, but it changes the state")
                legal |= bit
        return legal

    def _is_new(self, level: Level, configuration: Configuration) -> bool:
        """Returns whether no configuration that was visited dominates this one, and notes it."""
        done, deferred, used = configuration.done, configuration.deferred, configuration.used
        key = (configuration.level, configuration.state, done & level.general_mask)
        known = self.visited.get(key)
        if known is None:
            self.visited[key] = [(done, deferred, used, self._free(configuration))]
            return True
        observers = done & level.observer_mask
        ours = level.overwrite_mask
        for other_done, other_deferred, other_used, free in known:
            differ = ((other_done ^ done) | (other_deferred ^ deferred)) & ours
            if not (other_used & ~used or differ & ~free or observers & ~other_done):
                return False
        known.insert(0, (done, deferred, used, self._free(configuration)))
        return True

    def _free(self, configuration: Configuration) -> int:
        """Returns the slots of overwrites that could have no better status than they have here.

        These are the deferred ones, and the linearized ones that no later operation can notice.
        """
        pending, free = ~configuration.done, configuration.deferred
        for group in self.needs.plan(configuration.level).overwrites:
            if not group.noticed_ever & pending:
                free |= group.slots & configuration.done
        return free

    def _is_legal_after(self, overwrite: int, signature: int) -> bool:
        return self._after(self._after(0, overwrite), signature) >= 0

    def _after(self, state: int, signature: int) -> int:
        """Returns the number of the state after an operation; below zero if it is impossible."""
        cached = self.transitions[signature]
        after = cached.get(state, _UNTRIED)
        if after == _UNTRIED:
            result = step(self.model, self.states[state], self.prepared.samples[signature])
            after = _IMPOSSIBLE if result is None else self._number(result)
            cached[state] = after
        return after

    def _contradiction(self, position: int, what: str) -> UsageError:
        operation = self.prepared.operations[position]
        return UsageError(
            f"the model {self.model.name!r} declares that {operation.text()!r} would {what}: "
            "correct is_observer, is_overwrite or step"
        )

    def _number(self, state: Hashable) -> int:
        number = self.numbers.get(state)
        if number is None:
            number = self.numbers[state] = len(self.states)
            self.states.append(state)
        return number

    def _remember(self, reached: Configuration) -> None:
        if reached.level > self.farthest:
            self.farthest = reached.level
            self.longest = []
        if reached.level < self.farthest:
            return
        self.longest.append(reached.last)
        self.longest.sort(key=lambda one: -(one.length if one else 0))
        del self.longest[PARTIAL_MAX:]

    def _found(self, is_linearizable: bool | None) -> Found:
        orders = tuple(self._order(one) for one in self.longest)
        return Found(is_linearizable=is_linearizable, level=self.farthest, orders=orders)

    def _order(self, last: Step | None) -> tuple[tuple[int, Hashable], ...]:
        """Returns the operations of a path in the order in which they take effect."""
        steps = []
        while last is not None:
            steps.append(last)
            last = last.before
        steps.reverse()
        order: list[Step] = [one for one in steps if not one.is_settled]
        for settled in (one for one in steps if one.is_settled):
            # It takes effect immediately before an overwrite that took effect while it was pending.
            place = next(
                place
                for place, one in enumerate(order)
                if one.level >= self.prepared.arrival[settled.position]
                and self.prepared.is_overwrite[one.position]
                and not one.is_settled
            )
            order.insert(place, settled)
        return tuple((one.position, self.states[self._state_of(one)]) for one in order)

    def _state_of(self, one: Step) -> int:
        if not one.is_settled:
            return one.state
        return self._after(one.state, self.prepared.signature_of[one.position])


def _next(configuration: Configuration, position: int, state: int) -> Step:
    last = configuration.last
    return Step(last, position, state, configuration.level, False, last.length + 1 if last else 1)


def _passed(level: Level, configuration: Configuration) -> Configuration:
    """Returns the configuration after the completion of an operation that is linearized or deferred."""
    last = configuration.last
    if level.target_bit & configuration.deferred:
        length = last.length + 1 if last else 1
        last = Step(last, level.target, configuration.state, configuration.level, True, length)
    return Configuration(
        configuration.level + 1,
        configuration.state,
        configuration.done & ~level.target_bit,
        configuration.deferred & ~level.target_bit,
        configuration.used,
        last,
        0,
    )
