"""Compares what two clusters responded to one request, field by field."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.conformance.normalisation import Tree

ABSENT = "absent"
OUTCOME = "outcome"
"""The name of the field for: a response, a closed connection, or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What came back for one request of a case.

    Attributes:
        request: What was sent, in a few words: "produce v11".
        outcome: As in `harness.conformance.connection`, or why a response cannot be read.
        response: Normalised; None without a response.
    """

    request: str
    outcome: str
    response: Tree = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One field in which two responses differ.

    Attributes:
        request: Id of the case.
        field: Path of the field, from the number of the request within the case on: "1.topics.d.error_code".
        apache_kafka, reference: The value on each side, as text.
    """

    request: str
    field: str
    apache_kafka: str
    reference: str


def differences(
    case_id: str, apache_kafka: Sequence[Observation], reference: Sequence[Observation]
) -> list[Difference]:
    """Returns every field in which two sequences of observations differ.

    A list whose lengths differ, and an element that only one side has, is one difference. If a case ended early on
    one side, the requests that were not sent are differences too.
    """
    found = []
    for index in range(max(len(apache_kafka), len(reference))):
        left = apache_kafka[index] if index < len(apache_kafka) else None
        right = reference[index] if index < len(reference) else None
        found += [
            Difference(
                request=case_id,
                field=f"{index + 1}.{path}",
                apache_kafka=shown_left,
                reference=shown_right,
            )
            for path, shown_left, shown_right in _of_pair(left, right)
        ]
    return found


def _of_pair(left: Observation | None, right: Observation | None) -> Iterator[tuple[str, str, str]]:
    if left is None or right is None:
        yield OUTCOME, _outcome(left), _outcome(right)
    elif left.outcome != right.outcome:
        yield OUTCOME, left.outcome, right.outcome
    else:
        yield from _of_trees("", left.response, right.response)


def _outcome(observation: Observation | None) -> str:
    return "not sent" if observation is None else observation.outcome


def _of_trees(path: str, left: Tree, right: Tree) -> Iterator[tuple[str, str, str]]:
    if isinstance(left, dict) and isinstance(right, dict):
        for name in sorted(left.keys() | right.keys()):
            inner = f"{path}.{name}" if path else name
            if name not in left:
                yield inner, ABSENT, text(right[name])
            elif name not in right:
                yield inner, text(left[name]), ABSENT
            else:
                yield from _of_trees(inner, left[name], right[name])
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for index, (one, other) in enumerate(zip(left, right, strict=True)):
            yield from _of_trees(f"{path}.{index}" if path else str(index), one, other)
    elif left != right or isinstance(left, bool) is not isinstance(right, bool):
        yield path, text(left), text(right)


def text(tree: Tree) -> str:
    """Returns a value as it is shown and as the file of expected differences has it."""
    return tree if isinstance(tree, str) else json.dumps(tree, sort_keys=True)
