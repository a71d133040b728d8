"""The pages in a real browser: zoom, search, links, narrow screens, print, and accessibility (axe-core)."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.campaigns.night_outputs import close_night
from harness.site.content import SiteContent
from harness.site.static import write_site
from results.report.build import build_report
from results.report.compare import build_compare_report
from results.report.defect_search import build_search_report
from results.report.matrix import build_matrix_report
from results.store import RunStore
from tests.browser import CHROMIUM, MISSING, Browser, chromium
from tests.report.made_up_run import make_lost_run
from tests.report.test_recorded_messages import make_run_with_messages
from tests.unit.harness.campaigns.made_up_nights import LOSS, write_night
from tests.unit.harness.campaigns.made_up_nights import row as night_row

AXE = Path(sys.prefix) / "node_modules/axe-core/axe.min.js"
INSTALL_AXE = "npm install --prefix .venv --no-save axe-core@4.10.3"
SERIOUS = ("serious", "critical")
FIRST = "#partitions svg.chart"
PAPER_WIDTH = 718
"""CSS pixels between the margins of a sheet of A4."""

SCROLLING = """Array.from(document.querySelectorAll('.scroll'))
    .filter(one => one.scrollWidth > one.clientWidth + 1 && !one.querySelector('svg[data-end]'))
    .map(one => one.textContent.trim().slice(0, 60))"""
_TEXTS = """Array.from(document.querySelectorAll('svg.chart')).flatMap(chart =>
    Array.from(chart.querySelectorAll('text')).filter(text => text.getClientRects().length
        && getComputedStyle(text).visibility === 'visible' && text.textContent.trim())
        .map(text => ({chart, text, box: text.getBoundingClientRect()})))"""
CLIPPED = f"""{_TEXTS}.filter(one => {{
    const around = one.chart.getBoundingClientRect();
    return one.box.left < around.left - 1 || one.box.right > around.right + 1
        || one.box.top < around.top - 1 || one.box.bottom > around.bottom + 1;
}}).map(one => one.text.textContent)"""
OVERLAPPING = f"""(function () {{
    const texts = {_TEXTS}, found = [];
    texts.forEach((one, index) => texts.slice(index + 1).forEach(other => {{
        const names = [one, other].filter(each => each.text.closest('.names')).length;
        const width = Math.min(one.box.right, other.box.right) - Math.max(one.box.left, other.box.left);
        const height = Math.min(one.box.bottom, other.box.bottom) - Math.max(one.box.top, other.box.top);
        // Names of lanes have a ground of their own, under which texts scroll.
        if (one.chart === other.chart && names !== 1 && width > 3 && height > 4) {{
            found.push(one.text.textContent + ' | ' + other.text.textContent);
        }}
    }}));
    return found;
}})()"""

pytestmark = [pytest.mark.long, pytest.mark.skipif(CHROMIUM is None, reason=MISSING)]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_report(make_lost_run(tmp_path_factory.mktemp("store")))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests of this module, because its start takes seconds."""
    with chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def pages(report: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every kind of page."""
    folder = tmp_path_factory.mktemp("pages")
    arm = {
        "runs": 10,
        "runs_with_unexcused_loss": 2,
        "loss_rate_interval": [0.05, 0.5],
        "unexcused_lost_records": 12345,
        "unavailable_ms_median": 120.25,
    }
    arms = [{"name": "profile=kafka-4.0", **arm}, {"name": "profile=kafka-4.1", **arm}]
    outcome = {"predicted": "weak+visible", "run": "a/b"}
    cells = {f"kafka-3.{number}": {**outcome, "seen": "weak+visible"} for number in range(4)}
    cells["kafka-4.0"] = {**outcome, "seen": "weak"}
    row = {"variant": "V4", "title": "records with acks=1 on the last replica", "cells": cells}
    matrix = {
        **{"scenario": "last-replica-standing", "on": "simulation", "as_predicted": 4, "cells": 5},
        **{"columns": list(cells), "rows": [row]},
    }
    command = f"laststand run {folder}/search-20260101T000000Z/any-clients.toml --seed 3"
    seen = {"status": "found", "runs": 4, "cpu_s": 2.5, "seed": 3, "what": "offset-reused, " * 9}
    defect = {"id": "any", "name": "ack-at-min-isr-copies", "profile": "kafka-4.1"}
    search = {
        **{
            "found": 1,
            "found_by_clients": 1,
            "found_by_stuck": 0,
            "harmful": 1,
            "runs": 9,
            "runs_max": 500,
        },
        **{"cpu_s_max": 180.0, "unfinished": 0, "wrong": [], "errors": []},
        "defects": [
            {
                **{**defect, "monitor": None, "clients": {**seen, "command": command}},
                "stuck": {**seen, "status": "ended", "what": "", "command": ""},
            }
        ],
    }
    job = {"name": "random", "experiment": "elr-compare", "system": "reference"}
    jobs = [{**job, "profile": "kafka-4.1", "world": "simulation", "kind": "random"}]
    night = write_night(folder / "nights", "2026-11-22", [night_row("random", 1, LOSS)], jobs)
    close_night(night, root=str(folder / "tables"), known={})
    return {
        "report": report,
        "recorded": build_report(make_run_with_messages(folder / "recorded")),
        "index": write_site(SiteContent(RunStore(report.parents[2])), folder / "site"),
        "comparison": build_compare_report(
            folder / "compare.html", {"arms": arms, "mcnemar_p": 0.5}
        ),
        "matrix": build_matrix_report(folder / "matrix.html", matrix, "laststand again"),
        "search": build_search_report(folder / "search.html", search, "laststand again"),
        "night": night / "nightly.html",
    }


PAGES = ("report", "recorded", "index", "comparison", "matrix", "search", "night")


def time_of(browser: Browser) -> list[float]:
    """Returns the time that the first chart shows."""
    chart = f"document.querySelector('{FIRST}').dataset"
    return [
        float(browser.value(f"{chart}.from || {chart}.begin")),
        float(browser.value(f"{chart}.to || {chart}.end")),
    ]


def test_all_charts_zoom_together_by_buttons_drags_and_links(
    browser: Browser, report: Path
) -> None:
    browser.resize(1400)
    browser.open(report.as_uri())
    begin, end = time_of(browser)
    browser.click("[data-zoom=in]")
    first, last = time_of(browser)
    assert last - first == pytest.approx((end - begin) / 2)
    shown = browser.value(
        "Array.from(document.querySelectorAll('svg.chart[data-from]')).map(one => one.dataset.from)"
    )
    assert len(shown) >= 3
    assert len(set(shown)) == 1
    browser.click("[data-zoom=later]")
    assert time_of(browser)[1] == pytest.approx(end)
    browser.click("[data-zoom=whole]")
    assert time_of(browser) == pytest.approx([begin, end])

    browser.drag(FIRST, 0.4, 0.5)
    first, last = time_of(browser)
    assert begin < first < last < end
    plot = (1160 - 118 - 26) / 1160
    assert last - first == pytest.approx((end - begin) * 0.1 / plot, rel=0.02)
    browser.click("[data-zoom=whole]")

    browser.click("#faults tbody tr a")
    browser.wait(f"document.querySelector('{FIRST}').dataset.from !== '{begin}'")
    first, last = time_of(browser)
    assert last - first == pytest.approx(2.0)
    assert browser.problems == []


def test_a_zoom_moves_every_shape_and_is_undone_exactly(browser: Browser, report: Path) -> None:
    browser.resize(1400)
    browser.open(report.as_uri())
    places = f"""Array.from(document.querySelectorAll('{FIRST} rect, {FIRST} line, {FIRST} path, {FIRST} text'))
        .filter(one => !one.closest('.selection,.cursor,.names,clipPath,.time-axis'))
        .map(one => ['x', 'x1', 'width', 'd'].map(name => one.getAttribute(name)).join(' ') + one.style.display)"""
    browser.click("[data-zoom=in]")
    browser.click("[data-zoom=whole]")
    whole = browser.value(places)
    browser.click("[data-zoom=in]")
    near = browser.value(places)
    assert sum(one != other for one, other in zip(whole, near, strict=True)) > 10
    outside = browser.value(
        f"""Array.from(document.querySelectorAll('{FIRST} rect')).filter(one => one.style.display !== 'none'
            && !one.closest('.selection,.names,clipPath')
            && (+one.getAttribute('x') < 117.9
                || +one.getAttribute('x') + +one.getAttribute('width') > 1134.7)).length"""
    )
    assert outside == 0
    browser.click("[data-zoom=whole]")
    assert browser.value(places) == whole


def test_operations_and_faults_lead_to_their_rows(browser: Browser, report: Path) -> None:
    browser.resize(1400)
    browser.open(report.as_uri())
    target = browser.value(
        "document.querySelector('#counterexample svg a[href^=\"#op-\"]').getAttribute('href')"
    )
    browser.click("#counterexample svg a[href^='#op-'] rect")
    browser.wait(f"location.hash === '{target}'")
    assert browser.value(f"document.querySelector('{target}').closest('article') !== null")
    browser.click(f"{FIRST} a[href^='#fault-']")
    browser.wait("/^#fault-/.test(location.hash)")
    assert browser.value("document.querySelector(location.hash).offsetHeight") > 0


@pytest.mark.parametrize("page", PAGES)
def test_a_click_on_every_summary_button_and_link_does_what_it_should(
    browser: Browser, pages: dict[str, Path], page: str
) -> None:
    browser.resize(1400)
    browser.open(pages[page].as_uri())
    browser.value("window.problems = []; window.onerror = text => { problems.push(text); }; true")
    for number in range(_mark(browser, "summary")):
        details = f"document.querySelector('[data-clicked=\"{number}\"]').closest('details').open"
        was_open = browser.value(details)
        browser.click(f'[data-clicked="{number}"]')
        browser.wait(f"{details} === {json.dumps(not was_open)}")
    for number in range(_mark(browser, "button")):
        browser.click(f'[data-clicked="{number}"]')
    for number in range(_mark(browser, "a[href^='#']:not([href*='='])")):
        target = browser.value(
            f"document.querySelector('[data-clicked=\"{number}\"]').getAttribute('href')"
        )
        browser.click(f'[data-clicked="{number}"]')
        browser.wait(f"location.hash === {json.dumps(target)}")
        assert browser.value(f"document.getElementById({json.dumps(target[1:])}) !== null"), target
    assert browser.value("problems") == []


def _mark(browser: Browser, selector: str) -> int:
    """Numbers the visible elements that can be clicked, at most ten; returns how many there are."""
    return int(
        browser.value(
            f"""(function () {{
                document.querySelectorAll('[data-clicked]').forEach(one => {{ delete one.dataset.clicked; }});
                const found = Array.from(document.querySelectorAll({json.dumps(selector)}))
                    .filter(one => one.getClientRects().length && !one.closest('svg')).slice(0, 10);
                found.forEach((one, number) => {{ one.dataset.clicked = number; }});
                return found.length;
            }})()"""
        )
    )


def test_search_and_filters_leave_what_fits(browser: Browser, report: Path) -> None:
    browser.resize(1400)
    browser.open(report.as_uri())
    visible = "Array.from(document.querySelectorAll('#faults tbody tr')).filter(one => one.offsetHeight).length"
    before = browser.value(visible)
    browser.click("#find input")
    browser.type("power")
    browser.wait(f"{visible} < {before}")
    assert browser.value(visible) >= 1
    browser.click("#find button")
    browser.wait(f"{visible} === {before}")
    processes = browser.value(
        "Array.from(document.querySelectorAll('#find [name=process] option')).map(one => one.value)"
    )
    assert len(processes) > 2
    browser.value(
        f"""(function () {{
            const select = document.querySelector('#find [name=process]');
            select.value = {json.dumps(processes[1])};
            select.dispatchEvent(new Event('change', {{bubbles: true}}));
        }})()"""
    )
    wrong = browser.value(
        f"""Array.from(document.querySelectorAll('article.anomaly')).filter(one => one.offsetHeight
            && one.dataset.processes.split(' ').indexOf({json.dumps(processes[1])}) < 0).length"""
    )
    assert wrong == 0


def test_names_stay_visible_and_nothing_overflows_on_a_narrow_screen(
    browser: Browser, report: Path
) -> None:
    browser.resize(700)
    browser.open(report.as_uri())
    assert browser.value("document.documentElement.scrollWidth") <= 700
    names = """Array.from(document.querySelectorAll('#counterexample svg')).map(chart => {
        const name = chart.querySelector('.names text.lane').getBoundingClientRect();
        const box = chart.closest('.scroll').getBoundingClientRect();
        return [name.left - box.left, chart.closest('.scroll').scrollLeft];
    })"""
    browser.value("document.querySelectorAll('.scroll').forEach(box => { box.scrollLeft = 150; })")
    browser.wait(f"({names}).every(pair => pair[1] > 0 && pair[0] >= 0 && pair[0] < 40)")


@pytest.mark.parametrize("width", [1400, 700])
@pytest.mark.parametrize("page", PAGES)
def test_nothing_is_clipped_or_overlaps(
    browser: Browser, pages: dict[str, Path], page: str, width: int
) -> None:
    browser.resize(width)
    browser.open(pages[page].as_uri())
    browser.value("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value(SCROLLING) == [], "only charts of time scroll inside of the page"
    assert browser.value(CLIPPED) == []
    assert browser.value(OVERLAPPING) == []


@pytest.mark.parametrize("page", PAGES)
def test_nothing_is_cut_off_on_paper(browser: Browser, pages: dict[str, Path], page: str) -> None:
    browser.resize(PAPER_WIDTH)
    browser.open(pages[page].as_uri())
    browser.send("Emulation.setEmulatedMedia", media="print")
    try:
        assert browser.value("document.documentElement.scrollWidth") <= PAPER_WIDTH
        plain = browser.value(
            "Array.from(document.querySelectorAll('.legend i')).filter("
            "one => getComputedStyle(one).printColorAdjust !== 'exact').length"
        )
        assert plain == 0, "colours that a browser leaves out"
    finally:
        browser.send("Emulation.setEmulatedMedia", media="")


def test_keys_reach_the_zoom_and_change_it(browser: Browser, report: Path) -> None:
    browser.resize(1400)
    browser.open(report.as_uri())
    begin, end = time_of(browser)
    browser.value("document.querySelector('[data-zoom=in]').focus()")
    browser.press("Enter")
    first, last = time_of(browser)
    assert last - first < end - begin
    browser.press("Tab")
    assert browser.value("document.activeElement.dataset.zoom") == "out"


def test_names_of_charts_are_in_place_on_paper_after_scrolling(
    browser: Browser, report: Path
) -> None:
    browser.resize(700)
    browser.open(report.as_uri())
    browser.value("document.querySelectorAll('.scroll').forEach(box => { box.scrollLeft = 150; })")
    moved = """Array.from(document.querySelectorAll('#counterexample svg .names')).map(
        one => new DOMMatrix(getComputedStyle(one).transform).e)"""
    browser.wait(f"({moved}).some(x => x > 0)")
    browser.send("Emulation.setEmulatedMedia", media="print")
    try:
        assert set(browser.value(moved)) == {0}
    finally:
        browser.send("Emulation.setEmulatedMedia", media="")


def test_print_shows_all_and_no_controls(browser: Browser, report: Path, tmp_path: Path) -> None:
    browser.resize(1400)
    browser.open(report.as_uri())
    browser.click("#find input")
    browser.type("power")
    browser.send("Emulation.setEmulatedMedia", media="print")
    try:
        shown = browser.value(
            "['button', '#find', '#zoom', '.filters', '#contents'].filter("
            "name => Array.from(document.querySelectorAll(name)).some(one => one.offsetHeight))"
        )
        assert shown == []
        assert browser.value("document.querySelectorAll('article.anomaly')[0].offsetHeight") > 0
    finally:
        browser.send("Emulation.setEmulatedMedia", media="")
    assert browser.pdf(tmp_path / "report.pdf").stat().st_size > 10_000


@pytest.mark.skipif(not AXE.is_file(), reason=f"run: {INSTALL_AXE}")
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("page", PAGES)
def test_axe_finds_no_serious_violation(
    browser: Browser, pages: dict[str, Path], page: str, theme: str
) -> None:
    browser.resize(1400)
    browser.open(f"{pages[page].as_uri()}#theme={theme}")
    browser.value("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    browser.value(AXE.read_text(encoding="utf-8") + "\n;true")
    found = browser.value(
        "axe.run(document, {resultTypes: ['violations']}).then(result => result.violations.map("
        "one => [one.impact, one.id, one.nodes.slice(0, 3).map(node => node.html.slice(0, 200))]))"
    )
    assert [one for one in found if one[0] in SERIOUS] == []
