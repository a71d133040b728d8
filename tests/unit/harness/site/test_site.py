"""The index of a run store, the static site, and the server that only the user of this machine can read."""

import http.client
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import uvicorn

from harness.campaigns.files import COMPARE_PAGE, PLAN_FILE, SEARCH, SEARCH_FILE, SEARCH_PAGE
from harness.errors import UsageError
from harness.site import content as content_module
from harness.site.content import SiteContent
from harness.site.server import make_app, open_socket, page_path
from harness.site.static import write_site
from results.layout import RunFiles
from results.report.build import build_report
from results.store import RunStore, write_json
from tests.cli.cli_helpers import call, refused
from tests.report.made_up_run import make_lost_run

TOKEN = "the-token"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with an invalid run that has a report, an unfinished run, and two campaigns."""
    root = tmp_path / "store"
    build_report(make_lost_run(root))
    RunStore(root).create("power-cuts", 7, stamp="20260202T030405Z")
    arms = [
        {
            "name": "all",
            "experiment": {"system": "reference", "profile": "kafka-4.1", "on": "local"},
        }
    ]
    swarm = root / "swarm-20260101T000000Z"
    swarm.mkdir()
    plan = {"kind": "swarm", "started": "20260101T000000Z", "seeds": 3, "arms": arms}
    write_json(swarm / "plan.json", plan)
    night = root / "nightly-2026-01-03"
    night.mkdir()
    plan = {"kind": "nightly", "started": "20260103T000000Z", "runs": None, "jobs": arms}
    write_json(night / "plan.json", plan)
    numbers = {
        "findings": 2,
        "runs": 9,
        "marks": 5,
        "unavailable_ms_median": 1.5,
        "runs_per_min": 30,
    }
    write_json(
        night / "nightly.json", {"trends": [{"night": "2026-01-03", "job": "all", **numbers}]}
    )
    (night / "nightly.html").write_text("<!doctype html><title>night</title>", encoding="utf-8")
    return root


def data_of(page: str) -> dict:
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])


def test_the_index_lists_runs_campaigns_and_nights_with_their_pages(root: Path) -> None:
    page = SiteContent(RunStore(root)).index()
    (lost,) = (run.id for run in RunStore(root).list() if run.verdict == "invalid")
    assert f'<a href="{lost}/report.html">' in page
    assert 'href="power-cuts/' not in page  # it has no report yet
    assert "power-cuts/20260202T030405Z-7" in page
    assert '<a href="nightly-2026-01-03/nightly.html">' in page
    assert "swarm-20260101T000000Z" in page
    for chart in ("Runs per day", "Findings", "Speed"):
        assert chart in page
    assert "http" not in re.sub(r"http-equiv", "", page)


def test_each_kind_of_campaign_links_its_own_page(root: Path) -> None:
    search = root / "search-20260104T000000Z"
    search.mkdir()
    write_json(
        search / PLAN_FILE,
        {"kind": SEARCH, "started": "20260104T000000Z", "arms": []},
    )
    empty = {"errors": [], "wrong": [], "unfinished": 0, "runs": 5}
    write_json(search / SEARCH_FILE, empty)
    (search / COMPARE_PAGE).write_text("of another kind", encoding="utf-8")
    assert f'href="{search.name}/' not in SiteContent(RunStore(root)).index()
    (search / SEARCH_PAGE).write_text("<!doctype html>", encoding="utf-8")
    assert f'<a href="{search.name}/search.html">' in SiteContent(RunStore(root)).index()


def test_the_matrix_of_a_scenario_is_linked_if_it_has_its_page(root: Path) -> None:
    matrix = {"scenario": "last-replica-standing", "cells": 65, "as_predicted": 64}
    write_json(root / "last-replica-standing.json", matrix)
    write_json(root / "other.json", {"scenario": ["not", "a", "matrix"]})
    content = SiteContent(RunStore(root))
    assert "Scenarios" not in content.index()
    page = root / "last-replica-standing.html"
    page.write_text("<!doctype html>", encoding="utf-8")
    assert '<a href="last-replica-standing.html">last-replica-standing</a>: 64 of 65 outcomes' in (
        content.index()
    )
    assert Path(page.name) in content.pages()


def test_two_runs_can_be_compared_by_configuration_schedule_verdict_and_latency(root: Path) -> None:
    data = data_of(SiteContent(RunStore(root)).index())
    (lost,) = (one for one in data.values() if one["verdict"] == "invalid")
    assert lost["schedule"][0].endswith("Isolated b2 from all others")
    assert any(one.startswith("lost-acked-write (") for one in lost["anomalies"])
    assert set(lost["latency"]["append"]) == {"p50", "p95", "p99", "max"}
    assert lost["latency"]["append"]["p50"] <= lost["latency"]["append"]["max"]
    (unfinished,) = (one for one in data.values() if one["verdict"] == "unfinished")
    assert (unfinished["latency"], unfinished["schedule"]) == ({}, [])


def test_hostile_names_do_not_leave_their_place_in_the_page(root: Path) -> None:
    directory = RunStore(root).create("odd", 1, stamp="20260303T000000Z")
    hostile = "</script><script>alert(1)</script>"
    write_json(
        RunFiles(directory).run,
        {"verdict": hostile, "reasons": [hostile], "profile": '"><b>', "seed": 1},
    )
    page = SiteContent(RunStore(root)).index()
    assert "<script>alert" not in page
    assert '"><b>' not in page
    assert hostile in [one["verdict"] for one in data_of(page).values()]


def test_facts_are_read_again_only_if_the_run_changed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    run_facts = content_module.run_facts
    monkeypatch.setattr(
        content_module, "run_facts", lambda entry: read.append(entry.id) or run_facts(entry)
    )
    content = SiteContent(RunStore(root))
    content.index()
    assert len(read) == 2
    content.index()
    assert len(read) == 2
    (changed,) = (one for one in RunStore(root).list() if one.verdict == "unfinished")
    write_json(RunFiles(changed.directory).run, {"verdict": "valid"})
    assert data_of(content.index())[changed.id]["verdict"] == "valid"
    assert read[2:] == [changed.id]


def test_the_site_has_every_page_and_replaces_only_an_earlier_site(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "public"
    outcome = call(capsys, "site", folder, "--results", root, "--json")
    assert outcome.data == {"index": str(folder / "index.html"), "pages": 3}
    text = (folder / "index.html").read_text(encoding="utf-8")
    links = re.findall(r'<a href="([^"#]+)"', text)
    assert len(links) == 2
    assert all((folder / link).is_file() for link in links)
    stale = folder / links[0]
    stale.with_name("stale.html").touch()
    write_site(SiteContent(RunStore(root)), folder)
    assert not stale.with_name("stale.html").exists()
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").touch()
    assert "has files that are not of a site" in refused(capsys, "site", mine, "--results", root)
    assert (mine / "thesis.txt").exists()
    with pytest.raises(UsageError, match="is not a directory"):
        write_site(SiteContent(RunStore(root)), mine / "thesis.txt")


def test_an_empty_store_has_a_page_too(tmp_path: Path) -> None:
    page = SiteContent(RunStore(tmp_path / "none")).index()
    assert page.count("There are none.") == 2


@pytest.mark.parametrize(
    "address",
    [
        *("../secret.html", "power-cuts/../../secret.html", "/etc/passwd", "outside.html"),
        *("nightly-2026-01-03/nightly.json", "nightly-2026-01-03", "", "a\0b.html", "x" * 5000),
    ],
)
def test_only_pages_below_the_store_are_served(root: Path, address: str) -> None:
    (root.parent / "secret.html").touch()
    (root / "outside.html").symlink_to(root.parent / "secret.html")
    content = SiteContent(RunStore(root))
    assert page_path(content, address) is None
    assert page_path(content, "nightly-2026-01-03/nightly.html") is not None


@pytest.fixture
def port(root: Path) -> Iterator[int]:
    """A server for the store."""
    listener = open_socket(0)
    app = make_app(SiteContent(RunStore(root)), TOKEN)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield listener.getsockname()[1]
    server.should_exit = True
    thread.join()
    listener.close()


def get(port: int, path: str, **headers: str) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, {name.lower(): value for name, value in response.getheaders()}, text


def test_the_server_needs_the_token_and_keeps_it_in_a_cookie(port: int) -> None:
    for path in ("/", "/nightly-2026-01-03/nightly.html", "/?token=wrong", "/?token="):
        status, headers, text = get(port, path)
        assert (status, "laststand serve" in text) == (403, True)
        assert "set-cookie" not in headers
    status, headers, _ = get(port, f"/?token={TOKEN}")
    assert status == 303
    assert urlsplit(headers["location"]).query == ""
    for word in ("httponly", "samesite=strict"):
        assert word in headers["set-cookie"].lower()
    cookie = headers["set-cookie"].partition(";")[0]
    status, headers, text = get(port, "/", Cookie=cookie)
    assert (status, "Campaigns and nights" in text) == (200, True)
    assert (headers["x-frame-options"], headers["cache-control"]) == ("DENY", "no-store")
    assert get(port, "/nightly-2026-01-03/nightly.html", Cookie=cookie)[0] == 200
    assert get(port, "/nightly-2026-01-03/nightly.json", Cookie=cookie)[0] == 404
    assert get(port, "/", Cookie=cookie.replace(TOKEN, "wrong"))[0] == 403


def test_the_server_refuses_other_names_and_changes(port: int) -> None:
    assert get(port, f"/?token={TOKEN}", Host="attacker.example")[0] == 400
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/", headers={"Cookie": f"laststand={TOKEN}"})
    assert connection.getresponse().status == 405
    connection.close()


def test_the_server_listens_on_this_machine_only_and_names_a_used_port(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with open_socket(0) as listener:
        address, port = listener.getsockname()
        assert address == "127.0.0.1"
        assert f"port {port} cannot be used" in refused(
            capsys, "serve", "--port", port, "--results", tmp_path
        )
    assert "'70000' is more than 65535, the highest port" in refused(
        capsys, "serve", "--port", 70000, "--results", tmp_path
    )


def test_serve_prints_its_address_and_ends_well_when_interrupted(
    capsys: pytest.CaptureFixture[str], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(self: uvicorn.Server, sockets: list) -> None:
        assert sockets[0].getsockname()[0] == "127.0.0.1"
        raise KeyboardInterrupt

    monkeypatch.setattr(uvicorn.Server, "run", run)
    outcome = call(capsys, "serve", "--results", root)
    assert outcome.code == 0
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{20,}\n", outcome.out)
    again = call(capsys, "serve", "--results", root, "--json")
    assert again.data["url"] in again.err
    assert again.data["url"] != outcome.out.strip()
