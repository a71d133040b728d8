"""The matrix of a scenario: which runs it has, and what it states of their outcomes."""

from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.runs.matrix import RELEASES, cells_of, matrix_of
from harness.scenarios.last_replica_standing import VARIANTS
from results.report.matrix import build_matrix_report

LRS = "last-replica-standing"


def summary(outcome: str, predicted: str, run: str = "a/20260101T000000Z-1") -> dict[str, Any]:
    return {
        "outcome": outcome,
        "predicted": predicted,
        "as_predicted": outcome == predicted,
        "verdict": "valid" if outcome == "ok" else "invalid",
        "unexcused_lost_records": 0 if outcome == "ok" else 5,
        "run": run,
    }


def test_every_variant_runs_with_every_release() -> None:
    cells = cells_of(LRS, None)
    assert [(cell.variant, cell.column) for cell in cells] == [
        (variant, release) for variant in VARIANTS for release in RELEASES
    ]
    assert all(cell.experiment.scenario == f"{LRS}:{cell.variant}" for cell in cells)


def test_a_chosen_profile_is_the_only_column() -> None:
    cells = cells_of(LRS, "kafka-4.0")
    assert {cell.experiment.profile for cell in cells} == {"kafka-4.0"}
    assert len(cells) == len(VARIANTS)


def test_a_version_has_the_variants_whose_outcome_is_predicted_for_it() -> None:
    chosen = {"system": "apache-kafka", "on": "docker"}
    old = cells_of("kafka-bug", None, version="4.0.2", **chosen)
    new = cells_of("kafka-bug", None, version="4.1.2", **chosen)
    assert {cell.column for cell in new} == {"apache-kafka 4.1.2"}
    assert {"B-28", "B-31"} < {cell.variant for cell in old} < {cell.variant for cell in new}
    assert "B-47" in {cell.variant for cell in new} - {cell.variant for cell in old}


def test_the_reference_system_runs_the_bugs_that_it_can_show() -> None:
    assert {cell.variant for cell in cells_of("kafka-bug", "kafka-4.1")} == {
        "B-28",
        "B-29",
        "B-31",
        "B-34",
        "B-68",
        "B-69",
        "raft-timers",
        "B-48",
        "B-48r",
    }


def test_variants_that_cannot_run_somewhere_are_left_out_there() -> None:
    everywhere = {cell.variant for cell in cells_of(LRS, "kafka-4.1")}
    contained = {cell.variant for cell in cells_of(LRS, "kafka-4.1", on="docker")}
    assert everywhere - contained == {"V10b", "V11f", "V11k", "V11l"}
    kafka = cells_of(LRS, None, system="apache-kafka", version="4.1.2")
    without_rules = {name for name, one in VARIANTS.items() if not one.disabled_rules}
    assert {cell.variant for cell in kafka} == without_rules - {"V10b", "V11l"}


def test_a_version_for_which_nothing_is_predicted_is_refused() -> None:
    with pytest.raises(UsageError, match="no variant of kafka-bug has a predicted outcome here"):
        cells_of("kafka-bug", None, system="apache-kafka", version="3.9.1", on="docker")


def test_the_matrix_and_its_page_name_what_differs_from_the_prediction(tmp_path: Path) -> None:
    cells = cells_of(LRS, "kafka-4.1")[:2] + cells_of(LRS, "kafka-4.0")[:2]
    seen = [
        summary("ok", "ok"),
        summary("loss", "ok", "b & c/20260101T000000Z-1"),
        *[summary("loss", "loss")] * 2,
    ]
    matrix = matrix_of(LRS, cells, seen)
    assert (matrix["cells"], matrix["as_predicted"]) == (4, 3)
    assert matrix["columns"] == ["kafka-4.1", "kafka-4.0"]
    assert [row["variant"] for row in matrix["rows"]] == ["V1", "V1b"]
    assert matrix["rows"][1]["cells"]["kafka-4.1"]["seen"] == "loss"
    page = build_matrix_report(tmp_path / "page.html", matrix, "laststand again").read_text()
    assert "3 of 4 outcomes as predicted" in page
    assert page.count("predicted: ok") == 1
    assert 'href="b%20%26%20c/20260101T000000Z-1/report.html"' in page
    assert "laststand again" in page
    assert "had read is gone" not in page, "only the words that occur"
