"""Models by name: the built-in ones, those that installed packages provide, and any other by its import path.

A package provides a model through an entry point of the group `laststand.models`. A model that is not installed is
named by its import path, "module:attribute".
"""

from importlib import import_module
from typing import Any

from checkers.models.model import Model
from harness.contracts.registry import Registry
from harness.errors import UsageError

GROUP = "laststand.models"

MODELS: Registry[Any] = Registry(
    kind="model",
    group=GROUP,
    built_in={
        "register": "checkers.models.registers:REGISTER",
        "cas-register": "checkers.models.registers:CAS_REGISTER",
        "key-value": "checkers.models.registers:KEY_VALUE",
        "set": "checkers.models.sets:SET",
        "queue": "checkers.models.queues:QUEUE",
        "keyed-queue": "checkers.models.queues:KEYED_QUEUE",
    },
)
"""All models that have a name. The built-in names cannot be replaced."""


def find_model(name: str) -> Model:
    """Returns the model with the given name or import path.

    Raises:
        UsageError: No model has this name, it cannot be loaded, or it is not a model.
    """
    found = _imported(name) if ":" in name else MODELS.get(name)
    if isinstance(found, type):
        raise UsageError(f"the model {name!r} is a class; name an instance of it")
    for method in ("initial_state", "step"):
        if not callable(getattr(found, method, None)):
            raise UsageError(f"{name!r} is not a model: it has no method {method}")
    if not isinstance(getattr(found, "name", None), str):
        raise UsageError(f"{name!r} is not a model: its attribute name is not a text")
    model: Model = found
    return model


def model_names() -> tuple[str, ...]:
    """Returns the names of all models that can be found, the built-in ones first."""
    return MODELS.names()


def _imported(path: str) -> Any:
    module, _, attribute = path.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (Exception, SystemExit) as error:  # whatever the module raises while it is imported
        raise UsageError(
            f"the model {path!r} cannot be loaded: {type(error).__name__}: {error}{_hint(module, error)}"
        ) from None


def _hint(module: str, error: BaseException) -> str:
    """Returns how a module is found, if it is the module itself that was not.

    The current directory is not searched: one with histories from elsewhere could contain modules that are then
    imported instead of missing libraries.
    """
    if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
        return "; install it, or add the directory that contains it to PYTHONPATH"
    return ""
