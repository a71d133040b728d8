"""Mutated log directories: recovery must cut what is damaged, keep what is before it, and never raise or hang.

A case takes the files of a healthy log (several segments, epochs, idempotent producers), damages one or more of
them, and opens the log as after a crash. What has to hold then:

1. loading raises nothing;
2. every batch that is readable is intact, offsets have no gap, epochs never go back;
3. loading again changes nothing;
4. damage in the last segment costs nothing before it;
5. an append works, and is read back.

A fifth of the cases is opened as after an orderly stop, when contents are trusted: then only 1, 5 and the end
of the log count.
"""

import random
from collections.abc import Iterator
from functools import cache

from system_under_test.config import LogConfig
from system_under_test.log.epochs import EPOCH_CHECKPOINT
from system_under_test.log.log import Log
from system_under_test.log.verified import VerifiedBatches
from system_under_test.protocol.record_batch import decode_records, encode_batch, spans
from tests.fuzz.mutate import mutate
from tests.fuzz.report import Finding
from tests.memory_storage import MemoryStorage

DIRECTORY = "data/t-0"
CONFIG = LogConfig(segment_bytes=700)
BASE_LOGS = 12
EPOCH_MAX = 2**31 - 1


@cache
def healthy(number: int) -> dict[str, bytes]:
    """Returns the files of a healthy log by name."""
    stream = random.Random(number)
    storage = MemoryStorage()
    log = Log.load(storage, DIRECTORY, CONFIG, had_clean_shutdown=True)
    epoch = 0
    sequences = {7: 0, 8: 0}
    for _ in range(stream.randrange(1, 24)):
        if stream.random() < 0.2:
            epoch += stream.randrange(1, 4)
        count = stream.randrange(1, 5)
        pairs = [
            (b"k%d" % i, bytes(stream.randrange(256) for _ in range(stream.randrange(60))))
            for i in range(count)
        ]
        producer = stream.choice((-1, -1, 7, 8))
        known = producer in sequences
        log.append_as_leader(
            VerifiedBatches.verify(
                encode_batch(
                    pairs,
                    timestamp_ms=1_000_000 + log.log_end_offset,
                    producer_id=producer,
                    producer_epoch=0 if known else -1,
                    base_sequence=sequences.get(producer, -1),
                )
            ),
            epoch,
        )
        if known:
            sequences[producer] += count
    return {name: storage.read(f"{DIRECTORY}/{name}") for name in storage.list(DIRECTORY)}


def run(seed: int, count: int) -> Iterator[Finding | None]:
    """Yields a finding, or None, for every case."""
    for case in range(count):
        stream = random.Random(f"{seed} {case}")
        files, first_damage = damaged(healthy(stream.randrange(BASE_LOGS)), stream)
        is_trusted = stream.random() < 0.2
        recovery_point = stream.choice((0, 0, 0, 3, 1000))
        try:
            problem = check(files, first_damage, is_trusted, recovery_point)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        if problem is None:
            yield None
        else:
            data = ", ".join(f"{name}={content.hex()}" for name, content in sorted(files.items()))
            yield Finding(
                case=case,
                what=f"{problem} (trusted: {is_trusted}, recovery point {recovery_point})",
                data=data,
            )


def damaged(
    files: dict[str, bytes], stream: random.Random
) -> tuple[dict[str, bytes], tuple[str, int] | None]:
    """Returns damaged files, and where the damage begins if it is in the last segment only."""
    files = dict(files)
    names = sorted(name for name in files if name.endswith(".log"))
    whole = b"".join(files[name] for name in names)
    kind = stream.randrange(8)
    name = stream.choice(names)
    if kind == 0:
        files[EPOCH_CHECKPOINT] = mutate(files.get(EPOCH_CHECKPOINT, b""), stream, whole)
        return files, None
    if kind == 1:
        del files[name]
        return files, None
    if kind == 2:
        other = stream.choice(names)
        files[name], files[other] = files[other], files[name]
        return files, None
    if kind == 3:
        files[stream.choice(("00000000000000000007.log", "junk.log", f"{2**63:020d}.log"))] = whole[
            :200
        ]
        return files, None
    if kind == 4:
        # A torn tail, as a power cut leaves it.
        last = files[names[-1]]
        cut = stream.randrange(len(last) + 1)
        tail = stream.choice((b"", b"\0" * 64, bytes(stream.randrange(256) for _ in range(40))))
        files[names[-1]] = last[:cut] + tail
        return files, (names[-1], cut)
    if kind == 5:
        # An intact batch in the wrong place.
        batch = encode_batch([(None, b"x")], timestamp_ms=1, base_offset=stream.randrange(50))
        at = stream.randrange(len(files[name]) + 1)
        files[name] = files[name][:at] + batch + files[name][at:]
        return files, None
    changed = mutate(files[name], stream, whole)
    before = files[name]
    files[name] = changed
    if name != names[-1]:
        return files, None
    same = next(
        (i for i, (old, new) in enumerate(zip(before, changed, strict=False)) if old != new),
        min(len(before), len(changed)),
    )
    return files, (name, same)


def check(
    files: dict[str, bytes],
    first_damage: tuple[str, int] | None,
    is_trusted: bool,
    recovery_point: int,
) -> str | None:
    """Opens the log and returns what does not hold, None if all does."""
    storage = MemoryStorage()
    for name, content in files.items():
        storage.write(f"{DIRECTORY}/{name}", content)
    log = Log.load(
        storage,
        DIRECTORY,
        CONFIG,
        had_clean_shutdown=is_trusted,
        recovery_point=recovery_point,
    )
    end, start = log.log_end_offset, log.log_start_offset
    if not 0 <= start <= end:
        return f"the log runs from {start} to {end}"
    if not is_trusted:
        problem = _contents(log) if recovery_point == 0 else None
        if problem is None:
            problem = _again(storage, log)
        if problem is None and first_damage is not None and recovery_point == 0:
            problem = _kept(files, first_damage, end)
        if problem is not None:
            return problem
    info = log.append_as_leader(
        VerifiedBatches.verify(encode_batch([(b"k", b"new")], timestamp_ms=5)),
        min(log.latest_epoch + 1, EPOCH_MAX),
    )
    if info.first_offset != end:
        return f"an append landed at {info.first_offset}, the log ended at {end}"
    (batch,) = decode_records(log.read(end, 1 << 20, log.log_end_offset))
    return None if batch[1][0].value == b"new" else "what was appended is not what is read"


def _contents(log: Log) -> str | None:
    position = log.log_start_offset
    epoch = -1
    while position < log.log_end_offset:
        data = log.read(position, 1 << 20, log.log_end_offset)
        if not data:
            return f"nothing to read at {position} of {log.log_end_offset}"
        for span in spans(data, verify_crc=True):
            if position != log.log_start_offset and span.base_offset != position:
                return f"a batch at {span.base_offset}, expected {position}"
            if span.leader_epoch < epoch:
                return f"epoch {span.leader_epoch} behind {epoch} at {span.base_offset}"
            epoch = span.leader_epoch
            position = span.base_offset + span.offset_count
    return None


def _again(storage: MemoryStorage, log: Log) -> str | None:
    again = Log.load(
        storage,
        DIRECTORY,
        CONFIG,
        had_clean_shutdown=False,
        recovery_point=log.recovery_point,
        log_start_offset=log.log_start_offset,
    )
    first = (log.log_start_offset, log.log_end_offset, log.latest_epoch)
    second = (again.log_start_offset, again.log_end_offset, again.latest_epoch)
    if first != second:
        return f"loading again gives {second}, first it was {first}"
    return None if again.cut_bytes_at_load == 0 else "loading again cut something"


def _kept(files: dict[str, bytes], first_damage: tuple[str, int], end: int) -> str | None:
    """Damage in the last segment: everything in front of it is still there."""
    name, position = first_damage
    whole = int(name.removesuffix(".log"))
    at = 0
    data = files[name]
    while at < position:
        try:
            (span,) = spans(data[at : at + _size(data, at)], verify_crc=True)
        except Exception:
            break
        if at + span.size_bytes > position:
            break
        whole = span.base_offset + span.record_count
        at += span.size_bytes
    return None if end >= whole else f"the log ends at {end}, but {whole} records were undamaged"


def _size(data: bytes, at: int) -> int:
    return 12 + int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
