"""No product module imports itself through others, not even for types or inside a function.

Such a group of modules can only be understood, tested and moved together. An import contract (`pyproject.toml`)
describes declared layers; this test also covers modules that no contract names.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
PRODUCT = ("harness", "nemesis", "workloads", "checkers", "system_under_test", "results")

Graph = dict[str, set[str]]


def test_no_module_imports_itself_through_others() -> None:
    found = cycles(product_imports())
    assert found == [], "import cycles: " + "; ".join(", ".join(sorted(one)) for one in found)


def test_harness_has_few_loose_modules() -> None:
    loose = [path.name for path in (ROOT / "harness").glob("*.py")]
    assert len(loose) <= 12, f"put modules into packages; loose are {sorted(loose)}"


def test_type_checking_and_function_level_imports_count(tmp_path: Path) -> None:
    package = tmp_path / "harness"
    (package / "part").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "part" / "__init__.py").write_text("import harness.top\n")
    (package / "top.py").write_text("from . import low\nfrom .part import leaf\n")
    (package / "low.py").write_text("def f():\n    from harness.part.leaf import x\n")
    (package / "part" / "leaf.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from harness import top\n"
    )
    assert product_imports(tmp_path) == {
        "harness": set(),
        "harness.low": {"harness.part.leaf"},
        "harness.part": {"harness.top"},
        "harness.part.leaf": {"harness.top"},
        "harness.top": {"harness.low", "harness.part.leaf"},
    }
    assert cycles(product_imports(tmp_path)) == [
        {"harness.low", "harness.part.leaf", "harness.top"}
    ]


def test_cycles_are_the_strongly_connected_groups() -> None:
    graph: Graph = {
        "a": {"b"},
        "b": {"c", "d"},
        "c": {"a"},
        "d": {"e"},
        "e": set(),
        "f": {"f"},
        "g": {"h"},
        "h": {"g", "a"},
    }
    assert cycles(graph) == [{"a", "b", "c"}, {"f"}, {"g", "h"}]


def product_imports(root: Path = ROOT) -> Graph:
    """Returns which product module imports which, wherever in the file the import is."""
    paths = {
        _module_name(path.relative_to(root)): path
        for package in PRODUCT
        for path in sorted((root / package).rglob("*.py"))
    }
    return {
        name: {
            target
            for imported in _imported_names(path, name)
            if (target := _module_of(imported, paths)) is not None
        }
        for name, path in paths.items()
    }


def _module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported_names(path: Path, module: str) -> Iterator[str]:
    """Yields every imported module, or module attribute, with its full name."""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def _module_of(imported: str, modules: dict[str, Path]) -> str | None:
    """Returns the product module behind an imported name: itself, or what it is an attribute of."""
    if imported in modules:
        return imported
    parent = imported.rpartition(".")[0]
    return parent if parent in modules else None


def cycles(graph: Graph) -> list[set[str]]:
    """Returns the strongly connected groups of more than one module, and modules that import themselves.

    Two modules are in one group if each reaches the other. The product has some hundred modules, so that one
    search per module is fast enough.
    """
    reached = {module: _reachable(graph, module) for module in graph}
    found: list[set[str]] = []
    for module in sorted(graph):
        group = {other for other in reached[module] if module in reached[other]}
        if group and group not in found:
            found.append(group)
    return found


def _reachable(graph: Graph, start: str) -> set[str]:
    reached: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        module = waiting.pop()
        if module not in reached:
            reached.add(module)
            waiting.extend(graph[module])
    return reached
