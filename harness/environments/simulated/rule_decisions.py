"""Which decisions of protocol rules a simulated run made.

A switchable rule is read where it applies, as in `if is_below_min_isr and rules("PROD-2")`. Its *decision* is the
value of that condition: the largest expression of `and`, `or` and `not` that contains the switch. Plain runs
record no decisions and pay nothing for them. On request, once in a process, each function that reads a switch gets
code in which the condition is recorded. It is compiled from the same source with a call around the condition, so
values, order and trace hashes stay the same.

One world runs in a process at a time, so there is one record per process.
"""

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import system_under_test
from system_under_test.rules import SWITCHABLE_RULES

_PACKAGE = system_under_test.__name__
_READS = re.compile(r"rules\(\s*\"")
_RECORDER = "__decided__"
_SWITCHES = ("rules", "_rules")

_is_recording = False
_seen: dict[tuple[str, bool], None] = {}


def record() -> None:
    """Lets all nodes of this process record decisions from now on; idempotent."""
    global _is_recording
    if not _is_recording:
        for path in _modules():
            _instrument(path)
        _is_recording = True


def begin() -> None:
    """Forgets the decisions of earlier runs."""
    _seen.clear()


def decisions() -> tuple[str, ...]:
    """Returns the decisions since `begin`, sorted, for example "AP-4 in broker.isr:action_for: no"."""
    return tuple(sorted(f"{place}: {'yes' if value else 'no'}" for place, value in _seen))


def _decided(place: str, value: Any) -> Any:
    _seen[(place, bool(value))] = None
    return value


def _modules() -> list[Path]:
    """Returns the sources of the modules that read a switch, sorted."""
    root = Path(system_under_test.__path__[0])
    return [
        path
        for path in sorted(root.rglob("*.py"))
        if _READS.search(path.read_text(encoding="utf-8")) and path.name != "rules.py"
    ]


def _instrument(path: Path) -> None:
    """Replaces the code of the functions of a module that read a switch."""
    parts = path.relative_to(Path(system_under_test.__path__[0])).with_suffix("").parts
    module = import_module(".".join((_PACKAGE, *parts)))
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tree = ast.fix_missing_locations(_Recorded(".".join(parts)).visit(tree))
    codes = dict(_functions_in(compile(tree, str(module.__file__), "exec", dont_inherit=True)))
    vars(module)[_RECORDER] = _decided
    for function in _functions_of(module):
        code = codes.pop(_key(function.__code__), None)
        if code is not None:
            function.__code__ = code
    if codes:
        names = ", ".join(code.co_qualname for code in codes.values())
        raise RuntimeError(f"no decisions can be recorded in {module.__name__}: {names}")


class _Recorded(ast.NodeTransformer):
    """Puts a call around every condition that reads a switch.

    Args:
        module: The name of the module in places, below `system_under_test`.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._names: list[str] = []

    def visit(self, node: ast.AST) -> Any:
        """Returns the node with recorded conditions."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self._names.append(node.name)
            self.generic_visit(node)
            self._names.pop()
            return node
        rules = sorted(set(_read_in(node)))
        if not rules:
            return self.generic_visit(node)
        assert isinstance(node, ast.expr)
        place = f"{', '.join(rules)} in {self._module}:{'.'.join(self._names)}"
        call = ast.Call(
            func=ast.Name(id=_RECORDER, ctx=ast.Load()),
            args=[ast.Constant(value=place), node],
            keywords=[],
        )
        return ast.copy_location(call, node)


def _read_in(node: ast.AST) -> Iterator[str]:
    """Yields the rules whose switches a condition reads, through `and`, `or` and `not` only."""
    if isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from _read_in(value)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield from _read_in(node.operand)
    elif isinstance(node, ast.Call) and len(node.args) == 1:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        first = node.args[0]
        if name in _SWITCHES and isinstance(first, ast.Constant):
            if first.value not in SWITCHABLE_RULES:
                raise ValueError(f"{first.value!r} is no switchable rule")
            yield str(first.value)


def _key(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _functions_in(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    """Yields the functions of modules and classes that record a decision, themselves or in a function within."""
    for constant in code.co_consts:
        if not isinstance(constant, CodeType):
            continue
        if constant.co_flags & 1:  # CO_OPTIMIZED: a function, and no body of a class
            if _records(constant):
                yield _key(constant), constant
        else:
            yield from _functions_in(constant)


def _records(code: CodeType) -> bool:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return _RECORDER in code.co_names or any(map(_records, inner))


def _functions_of(owner: ModuleType | type) -> Iterator[FunctionType]:
    """Yields the functions of a module and of its classes, without decorators."""
    module = owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
    for value in list(vars(owner).values()):
        if isinstance(value, type) and value.__module__ == module:
            yield from _functions_of(value)
        candidates = (
            (value.fget, value.fset)
            if isinstance(value, property)
            else (getattr(value, "__func__", value),)
        )
        for one in candidates:
            found = getattr(one, "__wrapped__", one)
            if isinstance(found, FunctionType) and found.__module__ == module:
                yield found
