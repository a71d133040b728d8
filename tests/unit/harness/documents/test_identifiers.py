"""Every identifier and every document that the repository cites is in the repository."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from harness.scenarios.last_replica_standing import VARIANTS
from system_under_test.defects import DEFECTS
from system_under_test.related_bugs import RELATED_BUGS
from system_under_test.rule_catalogue import FAMILIES, RULES

ROOT = Path(__file__).parents[4]
FOLDERS = (
    "harness",
    "nemesis",
    "workloads",
    "checkers",
    "system_under_test",
    "results",
    "tests",
    "docs",
    "benchmarks",
    "examples",
)
ENDINGS = {".py", ".md", ".toml", ".html", ".js", ".css", ".properties"}

IDENTIFIER = re.compile(r"(?<![\w-])[A-Z]+-\d+(?:-[A-Z]{2,})?(?![\w-])")
"""The form of a rule (HW-1), an invariant (INV-1), a defect (B-01), or any other numbered name."""
VARIANT = re.compile(r"(?<![\w-])V\d+[a-z]?(?![\w-])")
DOCUMENT = re.compile(r"(?<![\w/.-])[\w./-]+\.md\b")

OUTSIDE = ("KIP-", "KAFKA-")
"""Proposals and tickets of Apache Kafka: their numbers are the reference."""
NO_IDENTIFIERS = {
    "UTF-8": "an encoding",
    "CRC-32": "a checksum",
    "SHA-256": "a checksum",
    "HW-11": "a typing error that a test expects to be refused",
    "HW-99": "a rule that a test expects to be refused",
    "PL-1": "an isolation level of Adya",
    "PL-2": "an isolation level of Adya",
    "PL-3": "an isolation level of Adya",
    "V33": "a typing error that a test expects to be refused",
    "V99": "a variant that a test expects to be refused",
}
NO_DOCUMENTS = {
    "summary.md": "a file of a run",
    "one.md": "a made-up document of a test",
}
UNPUBLISHED = re.compile(
    r"replication-protocol|known-bugs|\b[Ss]ections? \d|\b(?:[Dd]esign|[Pp]rotocol|[Ss]tanding) note\b"
    r"|\bthe project's notes|\bas the notes predict|\bthe note's|\bthe note leaves|[Cc]atalogue of known bugs"
    r"|\bthe catalogue's letters|\bshared/",
)
"""Words that once referred to texts outside of this repository."""


def files() -> Iterator[tuple[str, str]]:
    """Yields (path below the root, text) of every source and document, without this module."""
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    for path in sorted([*paths, *ROOT.glob("*.md"), ROOT / "Makefile", ROOT / "pyproject.toml"]):
        name = path.relative_to(ROOT).as_posix()
        is_stored_run = name.startswith("results/runs/")
        if (
            is_stored_run
            or path == Path(__file__)
            or name == "tests/unit/harness/documents/test_citations.py"
        ):
            continue
        if path.is_file() and (path.suffix in ENDINGS or path.name == "Makefile"):
            yield name, path.read_text(encoding="utf-8")


FILES = tuple(files())


@cache
def found(pattern: re.Pattern[str]) -> dict[str, set[str]]:
    """Returns the files by what the pattern matches in them."""
    matches: dict[str, set[str]] = {}
    for name, text in FILES:
        for match in pattern.finditer(text):
            matches.setdefault(match.group(), set()).add(name)
    return matches


def invariants() -> set[str]:
    text = (ROOT / "docs" / "invariants.md").read_text(encoding="utf-8")
    return set(re.findall(r"^\| (INV-\d+) \|", text, re.MULTILINE))


def documented_variants() -> set[str]:
    text = (ROOT / "docs" / "variants.md").read_text(encoding="utf-8")
    return set(re.findall(r"^\| (V\d+[a-z]?) \|", text, re.MULTILINE))


def test_the_scan_sees_code_tests_and_documents():
    names = {name for name, _ in FILES}
    assert {"system_under_test/rules.py", "docs/rules.md", "README.md", "Makefile"} <= names
    assert len(found(IDENTIFIER)) > 150


def test_every_cited_identifier_is_defined_by_a_document_of_the_repository():
    defined = {*RULES, *DEFECTS, *RELATED_BUGS, *invariants(), *NO_IDENTIFIERS}
    undefined = {
        name: sorted(places)
        for name, places in found(IDENTIFIER).items()
        if name not in defined and not name.startswith(OUTSIDE)
    }
    assert undefined == {}


def test_every_cited_variant_is_in_the_document_of_variants():
    documented = documented_variants()
    assert set(VARIANTS) <= documented
    # "V3" stands for all variants V3a, V3b and so on.
    groups = {name.rstrip("abcdefghijklmnopqrstuvwxyz") for name in documented}
    undefined = set(found(VARIANT)) - documented - groups - set(NO_IDENTIFIERS)
    assert undefined == set()


def test_the_document_of_mechanisms_names_every_family_of_rules_and_only_packages_that_exist():
    text = (ROOT / "docs" / "mechanisms.md").read_text(encoding="utf-8")
    families = {name.split("-")[0] for name in IDENTIFIER.findall(text)}
    assert set(FAMILIES) <= families
    packages = set(re.findall(r"`([a-z]+)`(?=[^|]*\|$)", text, re.MULTILINE))
    assert len(packages) > 5
    assert [name for name in packages if not (ROOT / "system_under_test" / name).is_dir()] == []


def test_every_cited_document_exists():
    missing = {
        name: sorted(places)
        for name, places in found(DOCUMENT).items()
        if name not in NO_DOCUMENTS
        and not (ROOT / name).is_file()
        and not all((ROOT / place).parent.joinpath(name).is_file() for place in places)
    }
    assert missing == {}


def test_the_exceptions_are_still_needed():
    cited = {*found(IDENTIFIER), *found(VARIANT)}
    assert set(NO_IDENTIFIERS) <= cited


def test_no_text_outside_the_repository_is_cited():
    cited = {
        f"{name}:{number}": line.strip()
        for name, text in FILES
        if UNPUBLISHED.search(text)
        for number, line in enumerate(text.splitlines(), start=1)
        if UNPUBLISHED.search(line)
    }
    assert cited == {}
