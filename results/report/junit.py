"""The result of a night as `junit.xml`, which CI systems show: one test case per job and per finding.

New and open findings are failures, known ones are skipped with their reason, resolved ones pass. A job is an
error if nothing is known of it or if a simulated run did not repeat. The elements and attributes are those that
the JUnit schemas of Ant and of Jenkins have in common.
"""

from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

from results.report.night_text import rate_text
from results.text import plain

HOST = "localhost"
"""The schema requires a host; a night may have run on several."""


def junit_xml(result: Mapping[str, Any]) -> str:
    """Returns the file's text.

    Args:
        result: The result of the night (`harness.campaigns.night_result`).
    """
    root = ElementTree.Element("testsuites")
    jobs = [_job_case(job) for job in result["jobs"]]
    findings = [_finding_case(finding) for finding in result["findings"]]
    findings += [_case("findings", _name(one)) for one in result["resolved"]]
    time_s = sum(job["wall_s"] for job in result["jobs"])
    root.append(_suite(result["night"], 0, "jobs", jobs, time_s))
    root.append(_suite(result["night"], 1, "findings", findings, 0.0))
    ElementTree.indent(root)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        + ElementTree.tostring(root, encoding="unicode")
        + "\n"
    )


def _suite(
    night: str, number: int, name: str, cases: list[ElementTree.Element], time_s: float
) -> ElementTree.Element:
    kinds = [child.tag for case in cases for child in case]
    suite = ElementTree.Element(
        "testsuite",
        {
            "id": str(number),
            "package": "laststand",
            "name": name,
            "timestamp": f"{night[:10]}T00:00:00",
            "hostname": HOST,
            "tests": str(len(cases)),
            "failures": str(kinds.count("failure")),
            "errors": str(kinds.count("error")),
            "skipped": str(kinds.count("skipped")),
            "time": f"{time_s:.3f}",
        },
    )
    properties = ElementTree.SubElement(suite, "properties")
    ElementTree.SubElement(properties, "property", {"name": "night", "value": night})
    suite.extend(cases)
    ElementTree.SubElement(suite, "system-out")
    ElementTree.SubElement(suite, "system-err")
    return suite


def _job_case(job: Mapping[str, Any]) -> ElementTree.Element:
    case = _case("jobs", str(job["job"]), job["wall_s"])
    if job["nondeterministic"]:
        message = f"{job['nondeterministic']} simulated runs did not repeat"
        _add(case, "error", "not-deterministic", message)
    elif job["is_unknown"]:
        _add(case, "error", "unknown", "; ".join(job["unknown_reasons"]))
    return case


def _finding_case(finding: Mapping[str, Any]) -> ElementTree.Element:
    case = _case("findings", _name(finding))
    if not finding["fails"]:
        known = finding["known"]
        rates = [rate_text(rate) for rate in finding["rates"]]
        message = "; ".join([f"known until {known['expiry']}: {known['reason']}", *rates])
        _add(case, "skipped", "", message)
        return case
    commands = [example["command"] for example in finding["examples"] if example["command"]]
    rates = [rate_text(rate) for rate in finding["rates"]]
    text = "\n".join([str(finding["parts"].get("sentence", "")), *rates, *commands])
    runs = finding["runs"]
    words = [finding["status"], f"{runs} {'run' if runs == 1 else 'runs'}"]
    words += ["flaky"] if any(rate["is_flaky"] for rate in finding["rates"]) else []
    message = ", ".join(words)
    _add(case, "failure", str(finding["parts"].get("what", "finding")), message, text)
    return case


def _name(finding: Mapping[str, Any]) -> str:
    return f"{finding['signature']} {finding['title']}"


def _case(group: str, name: str, time_s: float = 0.0) -> ElementTree.Element:
    attributes = {
        "classname": f"laststand.{group}",
        "name": plain(name),
        "time": f"{time_s:.3f}",
    }
    return ElementTree.Element("testcase", attributes)


def _add(case: ElementTree.Element, tag: str, kind: str, message: str, text: str = "") -> None:
    attributes = {"message": plain(message)} | ({"type": plain(kind)} if kind else {})
    child = ElementTree.SubElement(case, tag, attributes)
    # A lone control character would make the file unreadable for every parser.
    child.text = "\n".join(plain(line) for line in text.splitlines())
