"""The index of a run store in a real browser: filters, search, two runs side by side, links, and the token."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from harness.site.content import SiteContent
from harness.site.server import make_app, open_socket
from harness.site.static import write_site
from results.layout import RunFiles
from results.report.build import build_report
from results.store import RunStore, write_json
from tests.browser import CHROMIUM, MISSING, Browser, chromium
from tests.report.made_up_run import make_lost_run

pytestmark = [pytest.mark.long, pytest.mark.skipif(CHROMIUM is None, reason=MISSING)]

SHOWN = (
    "Array.from(document.querySelectorAll('#runs tr.item')).filter(row => row.offsetHeight).length"
)


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    root = tmp_path / "store"
    build_report(make_lost_run(root))
    store = RunStore(root)
    for seed, verdict in enumerate(("valid", "valid", "unknown")):
        directory = store.create("power-cuts", seed, stamp="20260202T030405Z")
        summary = {"verdict": verdict, "seed": seed, "profile": f"kafka-4.{seed}", "on": "local"}
        write_json(RunFiles(directory).run, summary)
    return store


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    (tmp_path / "profile").mkdir()
    with chromium(tmp_path / "profile") as browser:
        yield browser


def test_a_user_filters_searches_and_compares_runs_on_a_site_from_disk(
    browser: Browser, store: RunStore, tmp_path: Path
) -> None:
    browser.open(write_site(SiteContent(store), tmp_path / "public").as_uri())
    assert browser.value(SHOWN) == 4
    browser.click("#search")
    browser.type("LOST-acked")
    browser.wait(f"{SHOWN} === 1")
    browser.click("button[type=reset]")
    browser.wait(f"{SHOWN} === 4")
    browser.click("#search")
    browser.type("power-cuts valid")
    browser.wait(f"{SHOWN} === 2")
    assert browser.value("document.getElementById('found').textContent") == "2 of 4 match"
    browser.click("button[type=reset]")
    browser.wait(f"{SHOWN} === 4")

    choose = """(function () {{
        const day = document.getElementById('{}');
        day.value = '{}';
        day.dispatchEvent(new Event('input', {{bubbles: true}}));
    }})()"""
    browser.value(choose.format("from", "2026-02-01"))
    browser.wait(f"{SHOWN} === 3")
    browser.value(choose.format("to", "2026-02-01"))
    browser.wait(f"{SHOWN} === 0")
    browser.value(choose.format("from", ""))
    browser.wait(f"{SHOWN} === 1")
    browser.click("button[type=reset]")
    browser.wait(f"{SHOWN} === 4")

    assert browser.value("document.getElementById('compare').disabled")
    browser.click("tr[data-verdict=invalid] input")
    browser.click("tr[data-profile='kafka-4.1'] input")
    browser.click("#compare")
    browser.wait("!document.getElementById('pair').hidden")
    rows = dict(
        browser.value(
            "Array.from(document.querySelectorAll('.pair tr')).map("
            "row => [row.cells[0].textContent, Array.from(row.cells).slice(1).map(cell => cell.textContent)])"
        )
    )
    one, other = (0, 1) if rows["verdict"][0] == "invalid" else (1, 0)
    assert sorted(rows["verdict"]) == ["invalid", "valid"]
    assert rows["append p99"][one].endswith(" ms")
    assert rows["append p99"][other] == "–"
    assert "Isolated b2" in rows["faults"][one]
    assert browser.value("document.querySelector('.pair tr.differs td').textContent") == "verdict"
    address = browser.value("location.href")
    browser.open(address)  # the comparison can be sent to somebody
    assert not browser.value("document.getElementById('pair').hidden")

    browser.click(".pair a")
    browser.wait("document.querySelector('#verdict h1')")
    assert browser.value("document.querySelector('#verdict h1').textContent") == "invalid"
    assert browser.problems == []


def test_a_user_opens_the_printed_address_and_a_report(browser: Browser, store: RunStore) -> None:
    listener = open_socket(0)
    root = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    config = uvicorn.Config(
        make_app(SiteContent(store), "secret"), log_level="warning", lifespan="off"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        browser.open(root)
        assert "laststand serve" in browser.value("document.body.textContent")
        browser.problems.clear()  # the refusal
        browser.open(f"{root}?token=secret")
        assert browser.value("location.href") == root
        browser.click("tr[data-verdict=invalid] a")
        browser.wait("document.querySelector('#verdict h1')")
        assert browser.value("location.href").endswith("/report.html")
        unwanted = [one for one in browser.problems if "favicon" not in one]
        assert unwanted == []
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
