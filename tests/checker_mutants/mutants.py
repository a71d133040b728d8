"""Mutants of a module: copies in which one comparison, constant, operator or direction is replaced by another.

What is not mutated, because no verdict depends on it: annotations, decorators (`frozen`, `slots`), keywords that
only guard or speed up (`GUARDS`), and text.
"""

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import CodeType
from typing import Literal

ROOT = Path(__file__).parents[2]

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
"""An order is moved by one and inverted; everything else is inverted."""

OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}

NAMES = {
    "min": "max",
    "argmin": "argmax",
    "minimum": "maximum",
    "any": "all",
    "less": "less_equal",
    "greater": "greater_equal",
    "and_": "or_",
    "left": "right",
}
"""Functions of Python, numpy and pyarrow, and the sides of `searchsorted`; each is replaced by the other."""
DIRECTIONS = NAMES | {other: name for name, other in NAMES.items()}

Kind = Literal["comparison", "constant", "operator", "direction"]
KINDS: tuple[Kind, ...] = ("comparison", "constant", "operator", "direction")
REQUIRED: frozenset[Kind] = frozenset({"comparison", "constant"})
"""Judged unless more is asked for: where a rule begins and ends is in its comparisons and constants."""

GUARDS = frozenset({"strict", "copy", "zero_copy_only", "dtype", "minlength", "safe"})
SHOWN_MAX = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change of one module.

    Attributes:
        module: Path of the file, relative to the root of the repository.
        kind: What is replaced; an operator may be of numbers, of sets or of truth values.
        function: Qualified name of the function or class, `<module>` outside of both.
        line: Text of the line that is changed, without indentation.
        change: The expression before and after.
        repetition: Counts mutants that agree in everything above, from 0.
        line_number: Where the line is now; not part of the identity.
        statement: First and last line of its statement, without the body of a compound one.
        outer, outer_line: The function of the module or of a class that contains it, and its first line.
        is_in_function: Whether the change is in the body of a function, which the next call executes.
    """

    module: str
    kind: Kind
    function: str
    line: str
    change: str
    repetition: int
    line_number: int
    statement: tuple[int, int]
    outer: str
    outer_line: int
    is_in_function: bool

    @property
    def identity(self) -> tuple[str, str, str, str, int]:
        """What stays the same when other lines of the file change."""
        return self.module, self.function, self.line, self.change, self.repetition

    @property
    def name(self) -> str:
        """A short identifier of the mutant, from its identity."""
        return sha256("\n".join(map(str, self.identity)).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a node is; see the attributes of `Mutant`."""

    function: str
    outer: str
    outer_line: int
    is_in_function: bool
    statement: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Site:
    """A possible change: where it is, the expression that shows it, and what does and undoes it."""

    place: _Place
    node: ast.expr | ast.stmt
    shown: ast.expr | ast.stmt
    change: Callable[[], None]
    undo: Callable[[], None]


def mutants_of(module: str, source: str | None = None) -> list[Mutant]:
    """Returns the mutants of a module, in the order of the file.

    Args:
        module: Path of the file, relative to the root of the repository.
        source: Its text, if it is not to be read.
    """
    return [mutant for mutant, _ in _mutants_and_trees(module, source)]


def mutated_code(mutant: Mutant, source: str | None = None) -> CodeType:
    """Returns the compiled module with this change.

    Raises:
        KeyError: The module no longer has this mutant.
    """
    for found, tree in _mutants_and_trees(mutant.module, source):
        if found.identity == mutant.identity:
            return compile(tree, str(ROOT / mutant.module), "exec")
    raise KeyError(mutant.identity)


def _mutants_and_trees(module: str, source: str | None) -> Iterator[tuple[Mutant, ast.Module]]:
    """Yields mutants with the tree of the module, which has the change until the next mutant is requested."""
    text = (ROOT / module).read_text() if source is None else source
    lines = text.splitlines()
    tree = ast.parse(text)
    repetitions: Counter[tuple[str, str, str]] = Counter()
    for site in _sites(tree):
        shown = site.shown
        before = ast.unparse(shown)
        site.change()
        try:
            change = f"{before} -> {ast.unparse(shown)}"
            line = lines[site.node.lineno - 1].strip()
            key = (site.place.function, line, change)
            mutant = Mutant(
                module=module,
                kind=_kind(site.node),
                function=site.place.function or "<module>",
                line=line,
                change=change,
                repetition=repetitions[key],
                line_number=site.node.lineno,
                statement=site.place.statement,
                outer=site.place.outer,
                outer_line=site.place.outer_line,
                is_in_function=site.place.is_in_function,
            )
            repetitions[key] += 1
            yield mutant, tree
        finally:
            site.undo()


def _sites(tree: ast.Module) -> Iterator[_Site]:
    outside = _Place(function="", outer="", outer_line=0, is_in_function=False, statement=(0, 0))
    for node in tree.body:
        if not _is_only_for_people_or_tools(node):
            yield from _of_node(node, outside)


def _is_only_for_people_or_tools(node: ast.stmt) -> bool:
    """Whether a statement of a module is a script's entry or imports for type checkers."""
    if not isinstance(node, ast.If):
        return False
    test = ast.unparse(node.test)
    return test == "TYPE_CHECKING" or test.startswith("__name__ ==")


def _of_node(node: ast.AST, place: _Place, parent: ast.AST | None = None) -> Iterator[_Site]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield from _of_definition(node, place)
        return
    if isinstance(node, ast.stmt):
        place = replace(place, statement=_lines_of(node))
    if isinstance(node, ast.AnnAssign):
        if node.value is not None:
            yield from _of_node(node.value, place, node)
        return
    if isinstance(node, ast.keyword) and node.arg in GUARDS:
        return
    if isinstance(node, ast.expr | ast.stmt):
        for change, undo in _changes(node):
            shown = _shown(node, parent)
            yield _Site(place=place, node=node, shown=shown, change=change, undo=undo)
    for child in ast.iter_child_nodes(node):
        # A slice, a sign or the name of an argument is not worth showing alone.
        is_part = isinstance(node, ast.Slice | ast.UnaryOp | ast.keyword | ast.Tuple)
        yield from _of_node(child, place, parent if is_part else node)


def _of_definition(
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, place: _Place
) -> Iterator[_Site]:
    name = f"{place.function}.{node.name}" if place.function else node.name
    inner = replace(place, function=name, statement=_lines_of(node))
    if not isinstance(node, ast.ClassDef):
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            yield from _of_node(default, inner, None)
        if not place.is_in_function:
            inner = replace(inner, outer=name, outer_line=_first_line(node), is_in_function=True)
    for statement in node.body:
        yield from _of_node(statement, inner)


def _first_line(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def first_lines(module: str) -> dict[str, int]:
    """Returns the first line of every function of a module or of one of its classes, by qualified name."""
    return {name: first for name, (first, _) in _functions(module).items()}


def function_digests(module: str) -> dict[str, str]:
    """Returns a digest of the text of every such function, by qualified name."""
    lines = (ROOT / module).read_text().splitlines()
    return {
        name: sha256("\n".join(lines[first - 1 : last]).encode()).hexdigest()[:12]
        for name, (first, last) in _functions(module).items()
    }


def _functions(module: str) -> dict[str, tuple[int, int]]:
    """Returns the first and last line of every function of a module or of one of its classes."""

    def within(body: list[ast.stmt], scope: str) -> Iterator[tuple[str, tuple[int, int]]]:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield scope + node.name, (_first_line(node), node.end_lineno or node.lineno)
            elif isinstance(node, ast.ClassDef):
                yield from within(node.body, f"{scope}{node.name}.")

    return dict(within(ast.parse((ROOT / module).read_text()).body, ""))


def _lines_of(node: ast.stmt) -> tuple[int, int]:
    """Returns the first and last line of a statement; of a compound one those of its header."""
    body = getattr(node, "body", None) or getattr(node, "cases", None)
    if not body:
        return node.lineno, node.end_lineno or node.lineno
    first = body[0].pattern.lineno if isinstance(body[0], ast.match_case) else body[0].lineno
    return node.lineno, max(node.lineno, first - 1)


def _shown(node: ast.expr | ast.stmt, parent: ast.AST | None) -> ast.expr | ast.stmt:
    """Returns what shows a change best: of a constant or name, the expression around it unless it is long."""
    is_small = isinstance(node, ast.Constant | ast.Name)
    if is_small and isinstance(parent, ast.expr) and len(ast.unparse(parent)) <= SHOWN_MAX:
        return parent
    return node


def _kind(node: ast.expr | ast.stmt) -> Kind:
    match node:
        case ast.Compare():
            return "comparison"
        case ast.Constant(value=bool() | int() | float()):
            return "constant"
        case ast.BoolOp() | ast.UnaryOp() | ast.BinOp() | ast.AugAssign():
            return "operator"
        case _:
            return "direction"


Change = tuple[Callable[[], None], Callable[[], None]]


def _set(node: ast.AST, field: str, value: object) -> Change:
    return partial(setattr, node, field, value), partial(setattr, node, field, getattr(node, field))


def _changes(node: ast.expr | ast.stmt) -> Iterator[Change]:
    match node:
        case ast.Compare():
            for at, operator in enumerate(node.ops):
                for other in COMPARISONS[type(operator)]:
                    yield _set(node, "ops", [*node.ops[:at], other(), *node.ops[at + 1 :]])
        case ast.BoolOp():
            yield _set(node, "op", ast.Or() if isinstance(node.op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not() | ast.Invert() | ast.USub()):
            # A second operator takes the first one back. The constant of a negative number is mutated itself.
            if not isinstance(node.operand, ast.Constant):
                twice = ast.UnaryOp(op=node.op, operand=node.operand)
                yield _set(node, "operand", ast.copy_location(twice, node.operand))
        case ast.BinOp() | ast.AugAssign():
            if type(node.op) in OPERATORS and not _is_text(node):
                yield _set(node, "op", OPERATORS[type(node.op)]())
        case _:
            yield from _changes_of_leaf(node)


def _changes_of_leaf(node: ast.expr | ast.stmt) -> Iterator[Change]:
    match node:
        case ast.Constant(value=bool() as value):
            yield _set(node, "value", not value)
        case ast.Constant(value=int() | float() as value):
            yield _set(node, "value", value + 1)
        case ast.Constant(value="left" | "right" as value):
            yield _set(node, "value", DIRECTIONS[value])
        case ast.Attribute(attr=name, ctx=ast.Load()) if name in DIRECTIONS:
            yield _set(node, "attr", DIRECTIONS[name])
        case ast.Name(id=name, ctx=ast.Load()) if name in DIRECTIONS:
            yield _set(node, "id", DIRECTIONS[name])
        case ast.Call(func=ast.Attribute(attr="searchsorted")):
            if not any(keyword.arg == "side" for keyword in node.keywords):
                side = ast.keyword(arg="side", value=ast.Constant(value="right"))
                for part in (side, side.value):
                    ast.copy_location(part, node)
                yield _set(node, "keywords", [*node.keywords, side])


def _is_text(node: ast.BinOp | ast.AugAssign) -> bool:
    """Whether an operator joins pieces of text."""
    sides = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.value,)
    return any(
        isinstance(side, ast.JoinedStr)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in sides
    )
