"""`laststand check FILE`: a history from elsewhere."""

import os
import re
from pathlib import Path

import pytest

from harness.cli.commands.check import FORMATS
from harness.history.foreign.read import Format
from tests.cli.cli_helpers import USAGE, call, refused, write

KAFKA = """\
{:process 0 :type :invoke :f :send :value [[:send :x 1] [:send :x 2]]}
{:process :nemesis :type :info :f :kill}
{:process 0 :type :ok :f :send :value [[:send :x [0 1]] [:send :x [1 2]]]}
{:process 1 :type :invoke :f :assign :value [:x] :seek-to-beginning? true}
{:process 1 :type :ok :f :assign :value [:x] :seek-to-beginning? true}
{:process 1 :type :invoke :f :poll :value [[:poll]]}
{:process 1 :type :ok :f :poll :value [[:poll {:x [[0 1] [1 2]]}]]}
"""
HOW_TO = Path(__file__).parents[2] / "docs/how-to/check-a-history.md"


def test_the_formats_of_the_option_are_those_of_the_reader() -> None:
    assert set(FORMATS) == {str(form) for form in Format}


def test_a_valid_history_exits_with_0(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    outcome = call(capsys, "check", write(tmp_path / "history.edn", KAFKA))
    assert outcome.code == 0
    assert outcome.out.splitlines()[0] == "VALID"
    assert re.search(r"not judged +nemesis kill \(1\)", outcome.out)
    assert re.search(
        r"levels +durability holds, integrity holds, order holds, fresh holds$",
        outcome.out,
        re.MULTILINE,
    )
    assert "reading" in outcome.err


def test_an_invalid_history_exits_with_1_and_names_lines(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = write(tmp_path / "history.edn", KAFKA.replace("[[0 1] [1 2]]}]]", "[[1 2]]}]]"))
    outcome = call(capsys, "check", path, "--quiet")
    assert outcome.code == 1
    assert outcome.err == ""
    assert "lost-acked-write in :x-0 (1): op 0 was acknowledged at offset 0" in outcome.out
    assert re.search(r"^ *0 +1  process 0 append", outcome.out, re.MULTILINE)
    assert re.search(r"^ *2 +6  process 1 poll", outcome.out, re.MULTILINE)


def test_json_is_one_object(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = write(tmp_path / "history.edn", KAFKA + "{:process 1 :type :invoke :f :frob}")
    outcome = call(capsys, "check", path, "--json", "--format", "edn", "--model", "log")
    assert outcome.code == 2
    assert outcome.data["verdict"] == "unknown"
    assert outcome.data["not_interpreted"] == 1
    assert "line 8: the Kafka workload has no function 'frob'" in outcome.data["reasons"]
    assert outcome.data["events_of_no_client"] == {"nemesis kill": 1}
    assert outcome.data["operations"] == 3
    assert (outcome.data["format"], outcome.data["model"]) == ("edn", "log")


def test_every_level_of_a_log_is_stated(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lost = KAFKA.replace("[[0 1] [1 2]]}]]", "[[1 2]]}]]")
    path = write(tmp_path / "history.edn", lost)
    outcome = call(capsys, "check", path, "--json")
    levels = outcome.data["levels"]
    assert (outcome.code, levels["durability"]) == (1, "broken")
    assert levels.keys() == {"durability", "integrity", "order", "fresh"}
    path = write(tmp_path / "history.edn", lost + "{:process 1 :type :invoke :f :frob}")
    outcome = call(capsys, "check", path, "--json")
    assert (outcome.code, set(outcome.data["levels"].values())) == (2, {"unknown"})


def test_an_append_that_may_be_lost_leaves_every_level_unknown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = [
        '{"kind": "append", "process": 0, "topic": "t", "partition": 0, "value": "a", "offset": 0, '
        '"invoked_ns": 1, "completed_ns": 2, "outcome": "ok"}',
        '{"kind": "append", "process": 0, "topic": "t", "partition": 0, "value": "b", '
        '"invoked_ns": 3, "completed_ns": 4, "outcome": "ok"}',
        '{"kind": "poll", "process": 1, "topic": "t", "partition": 0, "position": 0, "records": [[0, "a"]], '
        '"invoked_ns": 5, "completed_ns": 6, "outcome": "ok", "final": true}',
    ]
    path = write(tmp_path / "history.jsonl", "\n".join(lines))
    outcome = call(capsys, "check", path, "--json")
    assert (outcome.code, set(outcome.data["levels"].values())) == (2, {"unknown"})


CAS = """\
{"kind": "history", "version": 1, "model": "cas-register"}
{"kind": "operation", "process": 0, "invoked_ns": 0, "completed_ns": 5, "outcome": "ok",\
 "f": "write", "input": 1}
{"kind": "operation", "process": 1, "invoked_ns": 3, "completed_ns": 9, "outcome": "ok",\
 "f": "cas", "input": [1, 2], "output": true}
{"kind": "operation", "process": 0, "invoked_ns": 10, "completed_ns": 12, "outcome": "ok",\
 "f": "read", "output": 2}
{"kind": "operation", "process": 0, "invoked_ns": 13, "completed_ns": 14, "outcome": "ok",\
 "f": "read", "output": 1}
"""


def test_the_longest_order_that_a_model_allows_is_shown_and_drawn(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path, picture = write(tmp_path / "history.jsonl", CAS), tmp_path / "why.svg"
    outcome = call(capsys, "check", path, "--json", "--picture", picture)
    assert outcome.code == 1
    assert [
        (one["operation"], one["line"], one["state"]) for one in outcome.data["longest_order"]
    ] == [(0, 2, "1"), (1, 3, "2"), (2, 4, "2")]
    assert [one["operation"] for one in outcome.data["named_operations"]] == [3]
    assert picture.read_text().startswith("<svg ")
    shown = call(capsys, "check", path, "--quiet").out
    assert re.search(r"^ 1 +3  process 1 cas \[1 2\] -> true +2$", shown, re.MULTILINE)


VALID_CAS = CAS.replace('"output": 1', '"output": 2')


def test_a_valid_history_leaves_nothing_to_draw_and_is_valid_all_the_same(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    valid, picture = write(tmp_path / "valid.jsonl", VALID_CAS), tmp_path / "none.svg"
    nothing = (
        f"laststand: {picture} was not written, because there is nothing to draw: a picture shows an object that a"
        " model did not find valid\n"
    )
    shown = call(capsys, "check", valid, "--quiet", "--picture", picture)
    assert (shown.code, shown.out.splitlines()[0], shown.err) == (0, "VALID", nothing)
    as_json = call(capsys, "check", valid, "--quiet", "--json", "--picture", picture)
    assert (as_json.code, as_json.data["verdict"], as_json.err) == (0, "valid", nothing)
    assert as_json.data["longest_order"] == []
    # No model judges a log.
    log = write(tmp_path / "history.edn", KAFKA)
    of_log = call(capsys, "check", log, "--quiet", "--picture", picture)
    assert (of_log.code, of_log.out.splitlines()[0], of_log.err) == (0, "VALID", nothing)
    assert not picture.exists()


def test_a_picture_that_cannot_be_written_does_not_hide_the_verdict(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = write(tmp_path / "history.jsonl", CAS)
    outcome = call(capsys, "check", path, "--quiet", "--picture", tmp_path)
    assert (outcome.code, outcome.out.splitlines()[0]) == (1, "INVALID")
    assert outcome.err == f"laststand: {tmp_path} cannot be written: Is a directory\n"


def test_every_isolation_level_of_transactions_is_stated(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = (
        '{:process 0 :type :ok :f :txn :value [[:append "x" 1] [:r "y" nil]]}\n'
        '{:process 1 :type :ok :f :txn :value [[:append "y" 1] [:r "x" nil]]}\n'
        '{:process 2 :type :ok :f :txn :value [[:r "x" [1]] [:r "y" [1]]]}\n'
    )
    events = [line for line in text.splitlines(keepends=True)]
    invoked = [line.replace(":ok", ":invoke", 1) for line in events[:2]]
    last = [events[2].replace(":ok", ":invoke", 1).replace("[1]", "nil"), events[2]]
    path = write(tmp_path / "history.edn", "".join([*invoked, *events[:2], *last]))
    levels = call(capsys, "check", path, "--json", "--model", "list-append").data["levels"]
    assert levels["serializable"] == "broken", "each of the two read before the other one wrote"
    assert levels["snapshot-isolation"] == "unknown", "Elle's G2-item does not tell"
    assert levels["strong-read-committed"] == "holds"
    shown = call(capsys, "check", path, "--quiet", "--model", "list-append").out
    assert re.search(
        r"^levels +broken: .*serializable.*; holds: .*read-committed", shown, re.MULTILINE
    )
    weak = call(
        capsys, "check", path, "--json", "--model", "list-append", "--promise", "read-uncommitted"
    )
    levels = weak.data["levels"]
    assert levels["read-uncommitted"] == "holds"
    assert levels["read-committed"] == "unknown", "what it forbids was not looked for"


def test_values_are_those_of_the_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lines = [
        "{:type :invoke, :f :send, :value [[:send :x 3]], :process 0, :time 1, :index 0}",
        "{:type :ok, :f :send, :value [[:send :x [0 3]]], :process 0, :time 2, :index 1}",
        "{:type :invoke, :f :assign, :value [:x], :seek-to-beginning? true, :process 1, :time 3, :index 2}",
        "{:type :ok, :f :assign, :value [:x], :seek-to-beginning? true, :process 1, :time 4, :index 3}",
        "{:type :invoke, :f :poll, :value [[:poll]], :process 1, :time 5, :index 4}",
        "{:type :ok, :f :poll, :value [[:poll {:x [[0 3] [1 77]]}]], :process 1, :time 6, :index 5}",
    ]
    path = write(tmp_path / "history.edn", "\n".join(lines))
    checked = call(capsys, "check", path, "--json")
    assert checked.code == 1
    (reason,) = checked.data["reasons"]
    assert "read the value 77 at offset 1" in reason


COMPACTED = """\
{"kind": "history", "version": 1, "compacted": true}
{"kind": "append", "process": 0, "invoked_ns": 1, "completed_ns": 2, "outcome": "ok", "topic": "t",\
 "partition": 0, "value": "a", "key": "k", "offset": 0}
{"kind": "append", "process": 0, "invoked_ns": 3, "completed_ns": 4, "outcome": "ok", "topic": "t",\
 "partition": 0, "value": "b", "key": "k", "offset": 1}
{"kind": "poll", "process": 1, "invoked_ns": 5, "completed_ns": 6, "outcome": "ok", "topic": "t",\
 "partition": 0, "position": 0, "records": [[1, "b"]], "end_offset": 2, "final": true}
"""


def test_the_cleaner_of_a_compacted_topic_may_remove_records(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = write(tmp_path / "history.jsonl", COMPACTED)
    assert call(capsys, "check", path).code == 0
    assert call(capsys, "check", path, "--no-compacted").code == 1
    plain = write(tmp_path / "plain.jsonl", COMPACTED.replace("true}", "false}", 1))
    assert call(capsys, "check", plain).code == 1
    assert call(capsys, "check", plain, "--compacted").code == 0
    keyless = write(tmp_path / "keyless.jsonl", COMPACTED.replace('"key": "k", ', "", 1))
    assert refused(capsys, "check", keyless, "--quiet") == (
        f"{keyless}, line 2: an append has no key, but the topic is declared as compacted; state the keys of all"
        " appends, or do not declare it as compacted (`--no-compacted`)"
    )


def test_a_first_line_that_declares_a_compacted_topic_needs_keys_as_the_option_does(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for first, option in (("true}", ()), ("false}", ("--compacted",))):
        text = COMPACTED.replace('"key": "k", ', "").replace("true}", first, 1)
        path = write(tmp_path / "keyless.jsonl", text)
        assert "do not declare it as compacted" in refused(
            capsys, "check", path, "--quiet", *option
        )


def test_a_log_as_json_lines_is_judged_as_nothing_else(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = COMPACTED.replace(', "compacted": true', "")
    path = write(tmp_path / "log.jsonl", COMPACTED)
    assert call(capsys, "check", path, "--model", "log").code == 0
    for model in ("nonsense", "cas-register", "list-append", "module:attribute"):
        why = (
            f"lines of kind append, poll and latest are a log, which cannot be judged as {model!r}; state no"
            " model, or log"
        )
        assert refused(capsys, "check", path, "--quiet", "--model", model) == f"{path}: {why}"
        first = write(
            tmp_path / "first.jsonl",
            log.replace('"version": 1', f'"version": 1, "model": "{model}"'),
        )
        assert refused(capsys, "check", first, "--quiet") == f"{first}, line 1: {why}"
        # What the user states counts more.
        assert call(capsys, "check", first, "--quiet", "--compacted", "--model", "log").code == 0


def test_operations_are_not_judged_as_a_log(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = write(tmp_path / "cas.jsonl", CAS)
    why = (
        "operations cannot be judged as log; state the model of their functions, or describe a log by lines of"
        " kind append, poll and latest"
    )
    assert refused(capsys, "check", path, "--quiet", "--model", "log") == f"{path}: {why}"
    first = write(tmp_path / "first.jsonl", CAS.replace('"cas-register"', '"log"'))
    assert refused(capsys, "check", first, "--quiet") == f"{first}, line 1: {why}"


def test_the_sentence_about_an_unknown_model_lists_all_that_the_option_takes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = write(tmp_path / "cas.jsonl", CAS)
    sentence = refused(capsys, "check", path, "--quiet", "--model", "list-apend")
    assert sentence.startswith(
        "no model is called 'list-apend'; did you mean 'list-append'? (known"
    )
    assert sentence.endswith("list-append, log)")


LISTS = """\
{:process 0 :type :invoke :f :txn :value [[:append :x 1] [:r :x nil]]}
{:process 0 :type :ok :f :txn :value [[:append :x 1] [:r :x [1]]]}
"""


@pytest.mark.parametrize(
    ("option", "value", "judged"),
    [
        ("--promise", "serializable", "an isolation level can be stated for list-append only"),
        ("--initial", "1", "an initial value can be stated for models only"),
        ("--time-limit", "5", "a time limit can be stated for models only"),
    ],
)
def test_an_option_that_means_nothing_for_a_file_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, option: str, value: str, judged: str
) -> None:
    files = {
        "log": write(tmp_path / "log.edn", KAFKA),
        "list-append": write(tmp_path / "lists.edn", LISTS),
        "cas-register": write(tmp_path / "cas.jsonl", CAS),
    }
    for kind, path in files.items():
        if kind == ("list-append" if option == "--promise" else "cas-register"):
            assert call(capsys, "check", path, "--quiet", option, value).code != USAGE
            continue
        assert refused(capsys, "check", path, "--quiet", option, value) == (
            f"{judged}, and {path} is judged as {kind}; leave out {option}"
        )


def test_the_name_of_an_isolation_level_is_checked_for_every_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for text in (KAFKA, LISTS):
        path = write(tmp_path / "history.edn", text)
        sentence = refused(capsys, "check", path, "--quiet", "--promise", "serialisable")
        assert sentence.startswith("no isolation level is called 'serialisable'; did you mean")


@pytest.mark.parametrize(
    "option", ["--spark", "--no-spark", "--spark-master=local[2]", "--spark-conf=nonsense"]
)
def test_spark_judges_no_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, option: str
) -> None:
    path = write(tmp_path / "history.edn", KAFKA)
    assert refused(capsys, "check", path, "--quiet", option) == (
        f"{option.partition('=')[0]} is for stored runs, and {path} is a file, which is judged in this process;"
        " leave it out"
    )


def test_an_object_has_no_levels(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = write(
        tmp_path / "history.edn",
        "{:process 0 :type :invoke :f :read}\n{:process 0 :type :ok :f :read :value nil}\n",
    )
    assert call(capsys, "check", path, "--json").data["levels"] == {}
    assert not re.search("^levels", call(capsys, "check", path).out, re.MULTILINE)


def test_a_history_that_shows_no_model_is_refused_with_its_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = write(
        tmp_path / "history.edn",
        "{:process 0 :type :invoke :f :add :value 1}\n{:process 0 :type :ok :f :add :value 1}\n"
        "{:process 0 :type :invoke :f :read}\n{:process 0 :type :ok :f :read :value 1}\n",
    )
    assert refused(capsys, "check", path, "--quiet") == (
        f"{path}, line 4: read returned 1, and a read of a set returns a collection of its elements, so the"
        " functions do not show the model; state it with --model, for example your own as module:attribute"
    )


def test_the_examples_of_the_how_to_page_are_valid(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    blocks = re.findall(r'(?:^    \{"kind".*\n)+', HOW_TO.read_text(), re.MULTILINE)
    assert len(blocks) == 3
    for block, model in zip(blocks, ("log", "cas-register", "register"), strict=True):
        path = write(tmp_path / "history.jsonl", block)
        outcome = call(capsys, "check", path, "--json")
        assert (outcome.code, outcome.data["verdict"]) == (0, "valid")
        assert outcome.data["model"] == model


def test_an_object_is_judged_as_the_options_say(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = write(
        tmp_path / "history.edn",
        "{:process 0 :type :invoke :f :read}\n{:process 0 :type :ok :f :read :value 0}\n",
    )
    assert call(capsys, "check", path).code == 2
    assert call(capsys, "check", path, "--initial", "0", "--time-limit", "5").code == 0
    assert call(capsys, "check", path, "--initial", "1").code == 1
    sentence = refused(capsys, "check", path, "--initial", "[")
    assert sentence == "--initial, line 1, column 2: the text ends inside of '['"
    sentence = refused(capsys, "check", path, "--quiet", "--model", "frob")
    assert sentence.startswith("no model is called 'frob'")


def test_an_initial_value_is_compared_as_a_value_of_the_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    operation = (
        '"kind":"operation","process":0,"f":"read","invoked_ns":0,"completed_ns":5,"outcome":"ok"'
    )
    lines = write(tmp_path / "history.jsonl", f'{{{operation},"output":[1.0,null]}}\n')
    for value in ("[1.0, null]", "[1 nil]", "[1e0 nil]"):
        assert call(capsys, "check", lines, "--model", "register", "--initial", value).code == 0
    events = write(
        tmp_path / "history.edn",
        "{:process 0 :type :invoke :f :read}\n{:process 0 :type :ok :f :read :value 1.0}\n",
    )
    assert call(capsys, "check", events, "--initial", "1.0").code == 0
    assert call(capsys, "check", events, "--initial", "1").code == 1


def test_a_wrong_line_is_one_sentence_with_file_and_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = write(tmp_path / "history.edn", KAFKA + "{:process")
    assert refused(capsys, "check", path, "--quiet") == (
        f"{path}, line 8, column 10: the text ends inside of '{{'"
    )


def test_a_missing_file_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "history.edn"
    assert refused(capsys, "check", path) == f"there is no file {path}"


def test_a_pipe_is_no_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    for options in ((), ("--model", "log"), ("--no-spark",)):
        assert refused(capsys, "check", path, *options) == (
            f"{path} is neither a file nor a directory; only these can be read, so write the history to a file"
        )


def test_options_for_files_are_refused_for_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    sentence = refused(capsys, "check", "latest", "--model", "log", "--results", tmp_path)
    assert sentence == "--model is for files of other tools; latest is a stored run"


def test_what_is_stated_about_a_log_counts_more_than_the_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    replaced = KAFKA.replace("[:send :x [1 2]]]", "[:send :x [0 2]]]")
    lost = write(tmp_path / "lost.edn", replaced.replace("[[0 1] [1 2]]}]]", "[[0 2]]}]]"))
    assert call(capsys, "check", lost, "--quiet").code == 1
    assert call(capsys, "check", lost, "--quiet", "--acks", "all").code == 1
    weak = call(capsys, "check", lost, "--quiet", "--json", "--acks", "1")
    assert weak.code == 0
    assert "lost-acked-write-acks1" in {one["id"] for one in weak.data["anomalies"]}
    removed = write(tmp_path / "removed.edn", KAFKA.replace("[[0 1] [1 2]]}]]", "[[1 2]]}]]"))
    assert call(capsys, "check", removed, "--quiet").code == 1
    assert call(capsys, "check", removed, "--quiet", "--log-start-offset", "1").code == 0
    twice = KAFKA.replace("[1 2]]}]]", "[1 2] [2 1]]}]]")
    duplicate = write(tmp_path / "twice.edn", twice)
    assert call(capsys, "check", duplicate, "--quiet").code == 1
    allowed = call(capsys, "check", duplicate, "--quiet", "--json", "--at-least-once")
    assert (allowed.code, allowed.data["anomalies"][0]["judgement"]) == (
        0,
        "allowed by configuration",
    )
    gap = KAFKA.replace("[1 2]", "[5 2]")
    sparse = write(tmp_path / "gap.edn", gap)
    assert call(capsys, "check", sparse, "--quiet").code == 0
    assert call(capsys, "check", sparse, "--quiet", "--no-sparse").code == 1


@pytest.mark.parametrize("value", ["-1", "x", "1.5"])
def test_a_log_start_is_a_whole_number(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, value: str
) -> None:
    path = write(tmp_path / "history.edn", KAFKA)
    sentence = refused(capsys, "check", path, f"--log-start-offset={value}")
    assert f"{value!r} is not a whole number of at least 0" in sentence


def test_facts_about_logs_are_refused_for_other_objects(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = write(
        tmp_path / "register.edn",
        "{:process 0 :type :invoke :f :read :value nil}\n{:process 0 :type :ok :f :read :value 1}",
    )
    for options in (("--model", "register", "--acks", "1"), ("--acks", "1"), ("--sparse",)):
        assert refused(capsys, "check", path, "--quiet", *options) == (
            f"acks, gaps, retries and log starts can be stated for logs only; {path} is judged as register"
        )
    assert refused(capsys, "check", path, "--quiet", "--promise", "serializable") == (
        f"an isolation level can be stated for list-append only, and {path} is judged as register; leave out"
        " --promise"
    )


def test_an_option_about_a_log_is_refused_for_a_stored_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for option in ("--sparse", "--no-sparse", "--at-least-once"):
        assert "is for files of other tools" in refused(
            capsys, "check", "latest", option, "--results", tmp_path
        )
