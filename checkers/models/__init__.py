"""Linearizability of any object: a model of the object, and a search over the orders that a history allows."""

from checkers.models.check import check_model
from checkers.models.model import Decision, Model
from checkers.models.operation import Operation
from checkers.models.picture import draw_failure
from checkers.models.registry import find_model, model_names
from checkers.models.result import ModelResult, PartialLinearization, PartitionResult

__all__ = [
    "Decision",
    "Model",
    "ModelResult",
    "Operation",
    "PartialLinearization",
    "PartitionResult",
    "check_model",
    "draw_failure",
    "find_model",
    "model_names",
]
