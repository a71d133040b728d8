"""Files with histories: formats, damage, and memory."""

import gzip
import tracemalloc

import pytest

from harness.errors import HistoryError
from harness.history.foreign import log_tables, source
from harness.history.foreign.read import Format, Workload, read_history

WRITE = "{:process 0 :type :invoke :f :write :value 1}\n"


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "history"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (WRITE, Format.EDN),
        ("; comment\n[" + WRITE + "]", Format.EDN),
        ("(" + WRITE + ")", Format.EDN),
        ("#jepsen.history.Op" + WRITE, Format.EDN),
        ("\ufeff" + WRITE, Format.EDN),
        ('\n{"kind": "event", "type": "invoke", "process": 0, "f": "write"}', Format.JSONL),
        ("INFO  jepsen.util - 0\t:invoke\t:write\t1\n", Format.JEPSEN_LOG),
    ],
)
def test_the_format_is_recognised(write, text, form):
    history = read_history(write(text))
    assert (history.format, history.workload) == (form, Workload.MODEL)
    assert history.operation_count == 1


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "holds no operation"),
        (b"; nothing\n", "holds no operation"),
        (b"PAR1abc", "is one table of a stored run; name the directory of the run instead"),
        (b'[{"kind": "event"}]', "is a JSON array; write one object per line"),
        (b"\n\nhello", "line 3: this is neither EDN, JSON lines nor a log of Jepsen"),
        (WRITE.encode() + b"\n\xff", "line 3: the text is not UTF-8"),
        (WRITE.encode() + b"\xc3", "line 2: the text is not UTF-8"),
        (b"INFO  jepsen.util - 0\t:invoke\n\xff", "line 2: the text is not UTF-8"),
        (gzip.compress(WRITE.encode() * 99, mtime=0)[:-20], "cannot read the history"),
        (b"\x1f\x8bnot gzip at all", "cannot read the history"),
        (b"{:a", "line 1, column 4: the text ends inside of '{'"),
    ],
)
def test_a_damaged_file_is_refused_in_one_sentence(write, content, problem):
    path = write(content)
    with pytest.raises(HistoryError) as caught:
        read_history(path)
    assert problem in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_directory_are_refused(tmp_path):
    with pytest.raises(HistoryError, match=r"cannot read the history .*No such file"):
        read_history(tmp_path / "none")
    with pytest.raises(HistoryError, match=r"cannot read the history .*Is a directory"):
        read_history(tmp_path)


def test_a_line_of_a_log_has_a_limit(write, monkeypatch):
    monkeypatch.setattr(source, "LINE_BYTES_MAX", 2**20)
    path = write(b'{"kind": "event", "type": "ok", "process": 0}\n{"kind": "' + b"x" * 2**21)
    with pytest.raises(HistoryError, match="line 2: the line has more than 1 million bytes"):
        read_history(path, form=Format.JSONL)


@pytest.mark.long
def test_a_long_log_is_converted_in_bounded_memory(write, monkeypatch):
    """The rows of all operations as Python values would need more than 8 MB."""
    count = 6000
    monkeypatch.setattr(log_tables, "CHUNK_ROWS", 500)
    text = "".join(
        f"{{:process 0 :type :invoke :f :send :value [[:send :x {n}]] :time {n}}}\n"
        f"{{:process 0 :type :ok :f :send :value [[:send :x [{n} {n}]]]}}\n"
        for n in range(count)
    )
    read_history(write("[" + text[:1000].rpartition("\n")[0] + "]"))  # imports what is needed
    path = write(text)
    tracemalloc.start()
    try:
        history = read_history(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert history.operation_count == count
    assert peak < 4_000_000
