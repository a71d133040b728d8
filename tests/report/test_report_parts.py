"""Parts of the report on their own: series, bars, statistics, comparison."""

import numpy as np
import pytest
from markupsafe import Markup

from harness.errors import HistoryError
from results.report.compare import build_compare_report
from results.report.lanes import FAULT_ROWS_MAX, packed
from results.report.run import FaultWindow, details_text, parsed
from results.report.svg import TimeAxis, element, step_path, thinned, ticks, titled
from tests.report.pages import Page


def test_elements_escape_names_and_text():
    assert element("text", "<b>", class_="a", font_size=3) == (
        '<text class="a" font-size="3">&lt;b&gt;</text>'
    )
    assert element("line", x1=1.5, x2=2.0, y1=None) == '<line x1="1.5" x2="2"/>'
    assert titled("rect", 'a"<', x=0) == '<rect x="0"><title>a&#34;&lt;</title></rect>'
    assert isinstance(element("g"), Markup)


def test_thinning_keeps_spikes_ends_and_order():
    times = np.arange(100_000, dtype=np.int64)
    values = np.zeros(100_000, dtype=np.int64)
    values[31_415] = 9
    values[70_707] = -9
    kept_times, kept_values = thinned(times, values)
    assert len(kept_times) <= 2000
    assert kept_times[0] == 0
    assert kept_times[-1] == 99_999
    assert (np.diff(kept_times) > 0).all()
    assert kept_values.max() == 9
    assert kept_values.min() == -9
    assert kept_times[kept_values.argmax()] == 31_415


def test_a_short_series_is_not_thinned():
    times = np.arange(5)
    assert thinned(times, times)[0] is times


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 10, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        (0, 0.9, [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]),
        (0, 3600, [0, 500, 1000, 1500, 2000, 2500, 3000, 3500]),
        (3, 3, [3]),
    ],
)
def test_ticks_are_round(low, high, expected):
    assert ticks(low, high, 10) == expected


def test_an_axis_of_a_part_draws_what_lies_outside_at_its_edges_or_not_at_all():
    axis = TimeAxis(2000, 1000)
    assert (axis.x(0), axis.x(1000), axis.x(2000), axis.x(9000)) == (
        *(axis.left, axis.left),
        *(axis.right, axis.right),
    )
    assert axis.x(1500) == (axis.left + axis.right) / 2
    assert axis.shows(500, 1000)
    assert axis.shows(2000)
    assert not axis.shows(500, 999)
    assert not axis.shows(2001, 3000)
    # The line begins with the value that held at the edge, not with those before it.
    times, heights = np.array([0, 400, 1500, 3000]), [10.0, 20.0, 30.0, 40.0]
    middle, right = axis.x(1500), axis.right
    assert step_path(axis, times, heights, 2000) == f"M{axis.left} 20H{middle:g}V30H{right}"


def test_a_step_line_keeps_its_value_until_the_next_point():
    axis = TimeAxis(1000)
    path = step_path(axis, np.array([0, 500]), [10.0, 20.0], 1000)
    middle = (axis.left + axis.right) / 2
    assert path == f"M{axis.left} 10H{middle:g}V20H{axis.right}"
    assert step_path(axis, np.array([]), [], 1000) == ""


def window(begin: int, end: int) -> FaultWindow:
    return FaultWindow(
        number=1,
        fault_id="f",
        fault="kill",
        nodes=("b1",),
        begin_ns=begin,
        end_ns=end,
        took_effect=True,
    )


def test_fault_bars_do_not_overlap_while_rows_are_free():
    placed, rows = packed([window(0, 10), window(5, 15), window(10, 20), window(12, 13)])
    assert [row for row, _ in placed] == [0, 1, 0, 2]
    assert rows == 3
    assert packed([window(0, 100)] * 50)[1] == FAULT_ROWS_MAX


def test_details_are_readable_and_never_fail():
    assert details_text(
        {"frames_held": 3, "nodes": ["b1", "b2"], "ok": True, "deep": {"a": [1]}}
    ) == ("frames held: 3, nodes: b1 b2, ok: yes, deep (a: 1)")
    assert parsed("{broken") == {"text": "{broken"}
    assert parsed("[1]") == {"text": "[1]"}
    deep = "[" * 100_000
    assert parsed(deep) == {"text": deep}


def comparison() -> dict[str, object]:
    return {
        "title": "ELR off <against> on",
        "command": "laststand compare elr --seeds 200",
        "arms": [
            {
                "name": "off",
                "runs": 200,
                "runs_with_unexcused_loss": 31,
                "loss_rate_interval": [0.1114, 0.2116],
                "unknown": 3,
                "unexcused_lost_records": 412,
                "unavailable_ms_median": 2310,
            },
            {
                "name": "on",
                "runs": 200,
                "runs_with_unexcused_loss": 0,
                "loss_rate_interval": [0.0, 0.0188],
                "unexcused_lost_records": 0,
                "unavailable_ms_median": None,
            },
        ],
        "mcnemar_p": 9.31e-10,
        "experiment": {"name": "elr-compare"},
        "discordant": [
            {
                "seed": 17,
                "losses": {"off": 5, "on": 0},
                "commands": {"off": "laststand run elr --seed 17 --set '<x>'"},
            },
            18,
        ],
    }


def test_a_comparison_shows_both_arms_side_by_side(tmp_path):
    path = build_compare_report(tmp_path / "deep" / "compare.html", comparison())
    page = Page(path.read_text(encoding="utf-8"))
    assert page.ids() == ["result", "arms", "plots", "discordant"]
    for text in (
        "ELR off <against> on",
        "off lost acknowledged records in 31 of 200 runs; on lost acknowledged records in 0 of 200",
        "runs with unexcused loss 31 0",
        "15.50 % (11.14 to 21.16 %) 0.00 % (0.00 to 1.88 %)",
        "unexcused lost records 412 0",
        "median unavailable time 2,310 ms not measured",
        "unknown 3",
        "On the same seeds the first two arms differ (p = 9.3e-10).",
        "elr-compare",
        "17 off: 5, on: 0",
        "laststand run elr --seed 17 --set '<x>'",
    ):
        assert text in page.text, text
    assert sum(1 for _, a in page.tags if str(a.get("class")).startswith("dot ")) == 2


def version_arm(version: str, elr: bool, lost: int) -> dict[str, object]:
    facts = {"system": "apache-kafka", "version": version, "profile": f"kafka-{version[:3]}"}
    return {
        **comparison()["arms"][1 - bool(lost)],
        **facts,
        "name": f"features.eligible.leader.replicas.version={version}",
        "elr": elr,
        "on": "docker",
        "time_scale": 4.0,
    }


def test_several_arms_are_each_compared_with_the_first_and_named_by_their_values(tmp_path):
    arms = [version_arm("4.0.2", False, 31), version_arm("4.1.2", True, 0)]
    names = [arm["name"] for arm in arms]
    compared = {"arms": names, "pairs": 199, "only_first": 31, "only_second": 0}
    compared |= {"mcnemar_p": 0.001, "adjusted_p": 0.002}
    result = {**comparison(), "title": "", "arms": arms, "same_schedules": True}
    result["comparisons"] = [compared, {**compared, "arms": [names[0], "third"], "adjusted_p": 0.6}]
    page = Page(build_compare_report(tmp_path / "c.html", result).read_text(encoding="utf-8"))
    for text in (
        f"On the same seeds {names[1]} differ from {names[0]}.",
        "For the same seed, every arm had the same schedule of faults on the same topics.",
        "system apache-kafka 4.0.2 apache-kafka 4.1.2",
        "profile kafka-4.0 kafka-4.1",
        "eligible leader replicas off on",
        "environment docker docker",
        "times multiplied by 4 4",
        f"{names[1]} 199 31 0 0.001 0.002",
        "third 199 31 0 0.001 0.6",
    ):
        assert text in page.text, text
    figure = (tmp_path / "c.html").read_text(encoding="utf-8")
    assert ">4.0.2<title>" in figure and ">4.1.2<title>" in figure


def test_a_comparison_that_cannot_be_rendered_is_one_sentence(tmp_path):
    path = tmp_path / "compare.html"
    arm = comparison()["arms"][0]
    for result, message in (
        ({}, "has no key 'arms'"),
        ({"arms": []}, "has no arms"),
        ({"arms": [{"name": "off"}]}, "has no key 'loss_rate_interval'"),
        ({"arms": [{**arm, "runs_with_unexcused_loss": 201}]}, "201 of 200 runs do not fit"),
        ({"arms": [{**arm, "runs": None}]}, "cannot be shown"),
    ):
        with pytest.raises(HistoryError, match=message):
            build_compare_report(path, result)
    assert not path.exists()


def test_a_swarm_has_one_arm_and_no_discordant_seeds(tmp_path):
    result = {"arms": comparison()["arms"][:1]}
    page = Page(build_compare_report(tmp_path / "s.html", result).read_text(encoding="utf-8"))
    assert page.ids() == ["result", "arms", "plots"]
    assert "Swarm off lost acknowledged records in 31 of 200 runs." in page.text


@pytest.mark.parametrize(
    ("values", "title"),
    [
        ({"invalid": 0}, "Swarm: VALID"),
        ({"invalid": 0, "unknown_reasons": ["it ended early"]}, "Swarm: UNKNOWN"),
        ({"invalid": 2, "unknown_reasons": ["it ended early"]}, "Swarm: INVALID"),
        ({"invalid": 2, "errors": 1}, "Swarm off lost"),
    ],
)
def test_the_banner_of_a_swarm_states_its_verdict(tmp_path, values, title):
    arm = {**comparison()["arms"][0], "unknown_command": "laststand run a.toml --seed 3", **values}
    page = Page(build_compare_report(tmp_path / "s.html", {"arms": [arm]}).read_text("utf-8"))
    assert title in page.text
    assert "again laststand run a.toml --seed 3" in page.text
    both = build_compare_report(tmp_path / "c.html", {"arms": [arm, arm]})
    assert "Comparison off lost" in Page(both.read_text("utf-8")).text


def test_a_difference_within_chance_is_labelled(tmp_path):
    result = {**comparison(), "mcnemar_p": 0.3}
    page = Page(build_compare_report(tmp_path / "s.html", result).read_text(encoding="utf-8"))
    assert "Chance alone can explain the difference (p = 0.3)." in page.text
