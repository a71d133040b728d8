"""The trace: a hash of everything that happened, and optionally its text.

One record is three integers: the time, an interned label, and a detail (a count, a size, or the code of a
message's contents, `contents.py`). Labels contain names of nodes, message types and files, but no memory
addresses, so that equal runs have equal traces in every process.
Hashing integers in blocks takes a tenth of a microsecond per record, so the trace is always on.
"""

from array import array
from hashlib import blake2b

BLOCK_RECORDS = 1024
_FIELDS = 3


class Trace:
    """Records a run.

    Args:
        keep: Whether to keep all records in memory, for `lines`.
    """

    def __init__(self, *, keep: bool = False) -> None:
        self.keep = keep
        self.checkpoints: list[str] = []
        self._hash = blake2b(digest_size=16)
        self._block: list[int] = []
        self._kept: list[int] = []
        self._labels: list[str] = []
        self._codes: dict[str, int] = {}

    def intern(self, label: str) -> int:
        """Returns the code of a label. A new label becomes part of the hash."""
        code = self._codes.get(label)
        if code is None:
            self._flush()
            code = self._codes[label] = len(self._labels)
            self._labels.append(label)
            self._hash.update(label.encode())
        return code

    def record(self, now_ns: int, code: int, detail: int) -> None:
        """Adds one record."""
        block = self._block
        block.extend((now_ns, code, detail))
        if len(block) >= BLOCK_RECORDS * _FIELDS:
            self._flush()
            self.checkpoints.append(self._hash.hexdigest())

    def note(self, now_ns: int, label: str, detail: int = 0) -> None:
        """Adds one record by its label; for rare events."""
        self.record(now_ns, self.intern(label), detail)

    def _flush(self) -> None:
        if self._block:
            self._hash.update(array("q", self._block).tobytes())
            if self.keep:
                self._kept.extend(self._block)
            self._block.clear()

    @property
    def digest(self) -> str:
        """Returns the hash of everything so far."""
        self._flush()
        return self._hash.hexdigest()

    def lines(self) -> list[str]:
        """Returns the kept records as text, one line per record."""
        self._flush()
        kept = self._kept
        return [
            f"{kept[i] / 1e9:.9f} {self._labels[kept[i + 1]]} {kept[i + 2]}"
            for i in range(0, len(kept), _FIELDS)
        ]


def first_difference(left: Trace, right: Trace, *, context: int = 20) -> str:
    """Describes the first difference of two kept traces, with the lines around it; empty if they are equal."""
    a, b = left.lines(), right.lines()
    at = next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )
    if at == len(a) == len(b):
        return ""
    low, high = max(0, at - context), at + context + 1
    parts = [
        f"first difference at record {at}",
        "--- left",
        *a[low:high],
        "--- right",
        *b[low:high],
    ]
    return "\n".join(parts)
