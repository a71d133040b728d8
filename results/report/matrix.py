"""The page of a scenario's matrix: every variant, what was predicted and what was seen."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from results.layout import RunFiles
from results.report.build import environment, write_text

WORDS = {
    "ok": "nothing that was acknowledged is gone",
    "loss": "records that were acknowledged with acks=all are gone, and no election was flagged",
    "loss(f)": "such records are gone after a flagged election, which excuses it",
    "weak": "only records that were acknowledged with acks=1 are gone, which is allowed",
    "visible": "a record that a consumer had read is gone",
    "stuck": "the partition stays without a leader, or the cluster without an active controller",
    "unknown": "the run cannot be judged",
}
"""What the outcome words mean; two words may be joined by "+"."""


def build_matrix_report(path: Path, matrix: Mapping[str, Any], command: str) -> Path:
    """Writes the page; returns its path.

    Args:
        path: The HTML file to write, in the directory of the run store, so that links to reports work.
        matrix: As `harness.runs.matrix.matrix_of` returns it.
        command: The command that makes it again.
    """
    used = {
        word
        for row in matrix["rows"]
        for cell in row["cells"].values()
        for key in ("predicted", "seen")
        for word in str(cell[key]).split("+")
    }
    text = (
        environment()
        .get_template("matrix.html")
        .render(
            matrix=matrix,
            command=command,
            words={word: meaning for word, meaning in WORDS.items() if word in used},
            report_of=lambda run: quote(str(RunFiles(Path(run)).report)),
        )
    )
    write_text(path, text)
    return path
