"""Three nights of real simulated runs: a defect is switched on in the second night, and off in the third.

Another defect is on in every night and listed as a known failure.
"""

from pathlib import Path
from typing import Any

import pytest

from harness.campaigns.known_failures import load_known_failures
from harness.campaigns.night_outputs import close_night
from harness.campaigns.signature import findings_of
from harness.campaigns.worker import SUMMARY_KEYS
from harness.runs import experiment_file
from harness.runs.judge import judge_result
from harness.runs.simulated import simulate
from system_under_test.defects import DEFECTS
from tests.unit.harness.campaigns.made_up_nights import write_night

(EARLY_ACK,) = (one.rules for one in DEFECTS.values() if one.name == "ack-after-append")
PROFILES = {"current": "kafka-4.1", "without ELR": "kafka-4.0"}
SEEDS = {"current": (0, 1), "without ELR": (1,)}
JOBS = [{"name": name, "profile": profile} for name, profile in PROFILES.items()]


def run(job: str, seed: int, disabled_rules: tuple[str, ...]) -> dict[str, Any]:
    """Runs a seed as a worker does, and returns its row."""
    experiment = experiment_file.from_data(
        {
            "name": "three-nights",
            "profile": PROFILES[job],
            "disabled_rules": list(disabled_rules),
            "duration_ms": 12000,
            "workload": {"processes": 4, "appends_per_s": 20.0, "polls_per_s": 10.0},
            "nemesis": {
                "faults": ["cut", "isolate", "kill", "power", "controller", "stop", "pause"],
                "every_family": True,
                "gap_ms": 600,
                "hold_ms": 1500,
                "step_ms": 400,
            },
        }
    )
    result = simulate(experiment, seed)
    verdict, summary = judge_result(experiment, seed, result)
    found = findings_of(experiment, result.tables, verdict)
    return {
        **{key: summary[key] for key in SUMMARY_KEYS},
        "job": job,
        "arm": "",
        "on": experiment.on,
        "system": experiment.system,
        "error": "",
        "wall_s": 1.0,
        "stored": "",
        "replayed": "same" if found else "",
        "findings": [finding.to_json() for finding in found],
    }


@pytest.mark.long
@pytest.mark.slow
def test_a_defect_is_new_in_its_night_and_resolved_after_it(tmp_path: Path) -> None:
    known_file = tmp_path / "known-failures.toml"

    def hold_night(night: str, disabled_rules: tuple[str, ...]) -> dict[str, Any]:
        rules = {"current": disabled_rules, "without ELR": ()}
        rows = [run(job, seed, rules[job]) for job, seeds in SEEDS.items() for seed in seeds]
        place = write_night(tmp_path / "nights", night, rows, JOBS)
        known = load_known_failures(known_file)
        return close_night(place, root=str(tmp_path / "tables"), known=known, resolved_after=1)

    def signatures(result: dict[str, Any], status: str) -> set[str]:
        return {one["signature"] for one in result["findings"] if one["status"] == status}

    known_file.write_text("")
    first = hold_night("2026-11-20", ())
    listed = signatures(first, "new")
    assert listed, "the last replica standing is not in any list yet"
    assert first["exit_code"] == 1
    known_file.write_text(
        "".join(
            f'[[failure]]\nsignature = "{one}"\nreason = "KIP-966"\nexpiry = 2027-01-01\n'
            for one in sorted(listed)
        )
    )
    second = hold_night("2026-11-21", EARLY_ACK)
    new = signatures(second, "new")
    assert new
    assert signatures(second, "known") == listed
    assert (second["exit_code"], second["resolved"]) == (1, [])
    third = hold_night("2026-11-22", ())
    assert signatures(third, "known") == listed
    assert signatures(third, "new") == signatures(third, "open") == set()
    assert {one["signature"] for one in third["resolved"]} == new
    assert third["exit_code"] == 0
    assert [row["findings"] for row in third["trends"] if row["job"] == "current"] == [
        0,
        len(new),
        0,
    ]
