"""The packages below `examples` import of laststand only what docs/architecture.md lists as public."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = sorted(path.parent for path in (ROOT / "examples").glob("*/pyproject.toml"))
OURS = ("harness", "nemesis", "workloads", "checkers", "system_under_test", "results")


def public_modules() -> tuple[str, ...]:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    section = text.partition("### What a package of its own may import\n")[2].partition("\n#")[0]
    rows = re.findall(r"^\| (`.+?`) \|", section, re.MULTILINE)
    return tuple(name for row in rows for name in re.findall(r"`([\w.]+)`", row))


def imported(folder: Path) -> set[str]:
    found = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module)
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
    return {name for name in found if name.partition(".")[0] in OURS}


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda folder: folder.name)
def test_a_package_imports_public_modules_only(folder: Path) -> None:
    public = public_modules()
    assert "harness.contracts" in public
    names = imported(folder)
    assert names
    private = {name for name in names if not any(f"{name}.".startswith(f"{p}.") for p in public)}
    assert private == set()
