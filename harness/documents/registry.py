"""Which documents are generated, and which of them are stale."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.documents import (
    anomalies,
    commands,
    defects,
    differences,
    experiment_schema,
    faults,
    history_schema,
    marks,
    output_schema,
    profiles,
    protocol,
    readme,
    results,
    rules,
    selectors,
    variants,
)

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One generated document.

    Attributes:
        path: Below the root of the repository.
        text: Returns the text that the file should have.
    """

    path: str
    text: Callable[[], str]


DOCUMENTS: tuple[Document, ...] = (
    Document(path="README.md", text=readme.document),
    Document(path="docs/anomalies.md", text=anomalies.document),
    Document(path="docs/commands.md", text=commands.document),
    Document(path="docs/defects.md", text=defects.document),
    Document(path="docs/differences.md", text=differences.document),
    Document(path="docs/experiment.schema.json", text=experiment_schema.document),
    Document(path="docs/faults.md", text=faults.document),
    Document(path="docs/history.schema.json", text=history_schema.document),
    Document(path="docs/marks.md", text=marks.document),
    Document(path="docs/output.schema.json", text=output_schema.document),
    Document(path="docs/profiles.md", text=profiles.document),
    Document(path="docs/protocol.md", text=protocol.document),
    Document(path="docs/results.md", text=results.document),
    Document(path="docs/rules.md", text=rules.document),
    Document(path="docs/selectors.md", text=selectors.document),
    Document(path="docs/variants.md", text=variants.document),
)
"""In order of their paths."""


def stale_documents(root: Path = ROOT) -> list[str]:
    """Returns the paths of documents that are missing or differ from the code."""
    return [one.path for one in DOCUMENTS if _stored(root / one.path) != one.text()]


def write_documents(root: Path = ROOT) -> list[str]:
    """Writes the stale documents and returns their paths."""
    written = []
    for one in DOCUMENTS:
        text = one.text()
        if _stored(root / one.path) != text:
            (root / one.path).write_text(text, encoding="utf-8")
            written.append(one.path)
    return written


def _stored(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None
