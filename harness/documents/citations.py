"""Finds where identifiers are named: functions that apply a rule, and tests that mention it.

Sources are read as text and as syntax trees; nothing is imported or run. A place is the innermost class or
function around a line, or the module if there is none.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SYSTEM = ROOT / "system_under_test"
TESTS = ROOT / "tests"

_CATALOGUES = ("rules.py", "rule_catalogue", "defects.py", "related_bugs.py")
"""They list every identifier and apply none."""

_ABOUT_CATALOGUES = ("tests/mutations/test_mutations_coverage.py", "tests/unit/harness/documents/")
"""Tests of the catalogues themselves; what they name they do not show."""

_PACKAGES = ("checkers", "harness", "nemesis", "results", "workloads")
"""Packages beside the system under test; other modules are below it."""

_Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where something is.

    Attributes:
        file: Path below the root of the repository.
        name: Qualified name of the class or function; empty for the module.
    """

    file: str
    name: str


@dataclass(frozen=True)
class _Source:
    """One file; it is parsed when its tree or the line ranges of its classes and functions are needed."""

    file: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def scopes(self) -> tuple[tuple[int, int, str], ...]:
        """(first line, last line, qualified name) of every class and function, outer ones first."""
        return tuple(_scopes(self.tree, ""))

    def place(self, line: int) -> Place:
        """Returns the innermost scope around a line."""
        name = ""
        for first, last, qualified in self.scopes:
            if first <= line <= last:
                name = qualified
        return Place(self.file, name)


def switch_places() -> dict[str, list[Place]]:
    """Returns, by rule, the functions of the system under test that contain `rules("ID")`."""
    found: dict[str, set[Place]] = {}
    for source in _system_sources():
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call) and (rule := _switched_rule(node)) is not None:
                found.setdefault(rule, set()).add(source.place(node.lineno))
    return _sorted(found)


def mention_places(pattern: re.Pattern[str]) -> dict[str, list[Place]]:
    """Returns, by identifier, the places of the system under test whose comments or docstrings name it.

    Args:
        pattern: Matches one identifier.
    """
    found: dict[str, set[Place]] = {}
    for source in _system_sources():
        for line, text in _prose(source):
            for match in pattern.finditer(text):
                at = line + text.count("\n", 0, match.start())
                found.setdefault(match.group(), set()).add(source.place(at))
    return _sorted(found)


def naming_tests(pattern: re.Pattern[str]) -> dict[str, list[Place]]:
    """Returns, by identifier, the tests that name it, in their decorators, docstring, comments or code.

    A module that names it outside of its test functions is listed only if none of its tests does.
    """
    found: dict[str, set[Place]] = {}
    for source in _sources(TESTS):
        if not Path(source.file).name.startswith("test_"):
            continue
        if source.file.startswith(_ABOUT_CATALOGUES):
            continue
        for number, line in enumerate(source.text.splitlines(), start=1):
            for match in pattern.finditer(line):
                place = source.place(number)
                is_test = place.name.split(".")[-1].startswith("test_")
                found.setdefault(match.group(), set()).add(
                    place if is_test else Place(source.file, "")
                )
    return {name: _without_needless_modules(places) for name, places in _sorted(found).items()}


def place_of(reference: str) -> Place:
    """Returns the place that `module:object` or `module:` names.

    Args:
        reference: The module is below the system under test, unless it begins with another package.
    """
    module, _, name = reference.partition(":")
    parts = module.split(".")
    folder = Path() if parts[0] in _PACKAGES else Path(SYSTEM.name)
    path = folder.joinpath(*parts)
    is_package = (ROOT / path).is_dir()
    return Place((path / "__init__.py" if is_package else path.with_suffix(".py")).as_posix(), name)


def is_defined(place: Place) -> bool:
    """Whether there is such a file with such a class or function; the name may be empty."""
    path = ROOT / place.file
    return path.is_file() and (not place.name or place.name in _names(path))


@lru_cache
def _names(path: Path) -> frozenset[str]:
    return frozenset(name for _, _, name in _source(path).scopes)


def _without_needless_modules(places: list[Place]) -> list[Place]:
    with_tests = {place.file for place in places if place.name}
    return [place for place in places if place.name or place.file not in with_tests]


def _sorted(found: dict[str, set[Place]]) -> dict[str, list[Place]]:
    return {name: sorted(places) for name, places in sorted(found.items())}


def _switched_rule(call: ast.Call) -> str | None:
    """Returns the identifier in a call like `config.rules("HW-1")`."""
    called = call.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    if not name.endswith("rules") or len(call.args) != 1:
        return None
    (argument,) = call.args
    return str(argument.value) if isinstance(argument, ast.Constant) else None


def _prose(source: _Source) -> Iterator[tuple[int, str]]:
    """Yields (first line, text) of every comment and of every string that is a statement."""
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(source.tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.lineno, node.value.value


def _system_sources() -> Iterator[_Source]:
    for source in _sources(SYSTEM):
        if Path(source.file).relative_to(SYSTEM.name).parts[0] not in _CATALOGUES:
            yield source


@lru_cache(maxsize=2)
def _sources(folder: Path) -> tuple[_Source, ...]:
    return tuple(_source(path) for path in sorted(folder.rglob("*.py")))


def _source(path: Path) -> _Source:
    return _Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))


def _scopes(node: ast.AST, prefix: str) -> Iterator[tuple[int, int, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Scope):
            first = min([child.lineno, *(one.lineno for one in child.decorator_list)])
            name = f"{prefix}{child.name}"
            yield first, child.end_lineno or child.lineno, name
            yield from _scopes(child, f"{name}.")
        else:
            yield from _scopes(child, prefix)
