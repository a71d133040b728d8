"""The map of the repository names the import contracts that hold its arrows."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
CONTRACTS = [
    contract["name"]
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "importlinter"
    ]["contracts"]
]


@pytest.mark.parametrize("name", CONTRACTS)
def test_the_architecture_document_names_the_contract(name: str) -> None:
    document = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    assert f'"{name}"' in document
