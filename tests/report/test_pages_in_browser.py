"""The pages in a real browser: zoom, search, links, narrow screens, print, and accessibility (axe-core)."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.site.content import SiteContent
from harness.site.static import write_site
from results.report.build import build_report
from results.report.compare import build_compare_report
from results.store import RunStore
from tests.browser import CHROMIUM, MISSING, Browser, chromium
from tests.report.made_up_run import make_lost_run

AXE = Path(sys.prefix) / "node_modules/axe-core/axe.min.js"
INSTALL_AXE = "npm install --prefix .venv --no-save axe-core@4.10.3"
SERIOUS = ("serious", "critical")
FIRST = "#partitions svg.chart"

pytestmark = [pytest.mark.long, pytest.mark.skipif(CHROMIUM is None, reason=MISSING)]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_report(make_lost_run(tmp_path_factory.mktemp("store")))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests of this module, because its start takes seconds."""
    with chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


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
@pytest.mark.parametrize("page", ["report", "comparison", "index"])
def test_axe_finds_no_serious_violation(
    browser: Browser, report: Path, tmp_path: Path, page: str, theme: str
) -> None:
    path = report
    if page == "index":
        path = write_site(SiteContent(RunStore(report.parents[2])), tmp_path / "site")
    if page == "comparison":
        arm = {
            "runs": 10,
            "runs_with_unexcused_loss": 2,
            "loss_rate_interval": [0.05, 0.5],
            "unexcused_lost_records": 12,
            "unavailable_ms_median": 120.0,
        }
        arms = [{"name": "profile=kafka-4.0", **arm}, {"name": "profile=kafka-4.1", **arm}]
        path = build_compare_report(tmp_path / "compare.html", {"arms": arms, "mcnemar_p": 0.5})
    browser.resize(1400)
    browser.open(f"{path.as_uri()}#theme={theme}")
    browser.value("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    browser.value(AXE.read_text(encoding="utf-8") + "\n;true")
    found = browser.value(
        "axe.run(document, {resultTypes: ['violations']}).then(result => result.violations.map("
        "one => [one.impact, one.id, one.nodes.slice(0, 3).map(node => node.html.slice(0, 200))]))"
    )
    assert [one for one in found if one[0] in SERIOUS] == []
