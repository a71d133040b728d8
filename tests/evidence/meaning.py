"""What code does, without what only people read. Imports nothing of the project."""

import ast
import hashlib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def digest(parts: tuple[str, ...]) -> str:
    """Returns a digest of what some code does (see `modules_of`): what only people read does not count."""
    hashed = hashlib.sha256()
    for module in sorted(modules_of(parts)):
        hashed.update(f"{module.relative_to(ROOT)}\n{meaning_of(module.read_text())}\n".encode())
    return hashed.hexdigest()[:12]


def modules_of(parts: tuple[str, ...]) -> set[Path]:
    """Returns the modules that belong to some code.

    Args:
        parts: Folders, or modules with all that they import from their folder; with "!" before it, a folder or a
            module that does not belong to the parts before.
    """
    modules: set[Path] = set()
    for part in parts:
        path = ROOT / part.removeprefix("!")
        if part.startswith("!"):
            modules -= set(path.rglob("*.py")) if path.is_dir() else {path}
        else:
            modules |= set(path.rglob("*.py")) if path.is_dir() else _imported(path)
    return modules


def _imported(module: Path) -> set[Path]:
    """Returns a module and what it imports from its own folder, directly or not."""
    found, waiting = {module}, [module]
    while waiting:
        for name in _names_imported(waiting.pop().read_text()):
            path = (ROOT / name.replace(".", "/")).with_suffix(".py")
            if path.parent == module.parent and path not in found and path.exists():
                found.add(path)
                waiting.append(path)
    return found


@cache
def _names_imported(text: str) -> tuple[str, ...]:
    """Returns what the text of a module imports: modules, and names that may be modules."""
    names: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return tuple(names)


@cache
def meaning_of(text: str) -> str:
    """Returns what a module does, as text without comments, docstrings, layout and sentences for people."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [one for one in body if not _is_docstring(one)]  # type: ignore[attr-defined]
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            node.value = " "
    return ast.dump(tree)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
