"""The catalogue: complete, in a fixed order, and every request can be built."""

from collections import Counter
from typing import Any

import pytest

from harness.conformance import probe as probes
from harness.conformance.catalogue import FAMILIES, catalogue
from harness.conformance.catalogue.batches import batch, patched, with_payload
from harness.conformance.comparison import Observation
from harness.conformance.connection import CLOSED, RESPONSE, Reply
from harness.conformance.probe import Case, Probe, Target, run_case
from harness.conformance.run import chosen_cases
from harness.errors import UsageError
from system_under_test.protocol.apis import APIS, BROKER
from system_under_test.protocol.record_batch import decode_records

TARGET = Target(
    name="reference",
    brokers={1: "127.0.0.1:1", 2: "127.0.0.1:2", 3: "127.0.0.1:3"},
    controllers={11: "127.0.0.1:11", 12: "127.0.0.1:12"},
    now_ms=1_700_000_000_000,
)


class Recorder(Probe):
    """A probe without a cluster: it builds every request and keeps what was sent."""

    def __init__(self, number: int) -> None:
        self.sent: list[tuple[str, int]] = []
        self.frames: list[bytes] = []
        super().__init__(TARGET, number, partition=5)

    def refresh(self) -> None:
        pass

    def _partition(self, topic: str, partition: int) -> Any:
        class Known:
            leader_id, leader_epoch, replica_nodes = 1, 0, (1, 2, 3)

        return Known

    def topic_id(self, topic: str = "d") -> Any:
        return None

    def controller(self, *, is_active: bool = True) -> str:
        return TARGET.controllers[11]

    def coordinator(self, group: str) -> str:
        return TARGET.brokers[1]

    def new_producer(self) -> tuple[int, int]:
        return 1000, 0

    def prepare(self, api: str, version: int, values: Any, *, to: str | None = None) -> Any:
        probes.request_frame(api, version, values)

        class Prepared:
            error_code = type("Code", (), {"name": "none"})
            member_id, generation_id = "m", 1

        return Prepared

    def wait(self, what: str, find: Any) -> Any:
        return True

    def ask(self, api: str, version: int, values: Any, **options: Any) -> Any:
        self.sent.append((api, version))
        return super().ask(api, version, values, **options)

    def _exchange(self, frame: bytes, to: str | None, limit_s: float) -> Reply:
        self.frames.append(frame)
        return Reply(CLOSED)


def recorded(case: Case, number: int = 1) -> Recorder:
    recorder = Recorder(number)
    assert all(one.outcome == CLOSED for one in run_case(case, recorder)), case.id
    return recorder


def test_every_request_can_be_built_and_is_recorded():
    for number, case in enumerate(catalogue(), 1):
        recorder = recorded(case, number)
        assert recorder.frames, case.id
        assert len(recorder.observations) == len(recorder.frames), case.id


def test_ids_are_unique_and_begin_with_a_family():
    counts = Counter(case.id for case in catalogue())
    assert counts.most_common(1)[0][1] == 1
    assert all("/" in case_id and case_id == case_id.strip() for case_id in counts)


def test_there_are_more_requests_than_the_feasibility_study_had():
    assert len(catalogue()) > 800


def test_the_catalogue_is_the_same_every_time():
    again = [case.id for family in FAMILIES for case in family.cases()]
    assert again == [case.id for case in catalogue()]
    for case in catalogue()[::7]:
        assert recorded(case).frames == recorded(case).frames, case.id


def test_every_version_of_every_api_that_a_broker_serves_is_sent():
    sent = {one for case in catalogue() for one in recorded(case).sent}
    missing = [
        (api.module, version)
        for api in APIS
        if BROKER in api.roles
        for version in range(api.min_version, api.max_version + 1)
        if (api.module, version) not in sent
    ]
    assert missing == []


def test_every_api_that_a_controller_serves_is_sent():
    sent = {api for case in catalogue() for api, _ in recorded(case).sent}
    assert {api.module for api in APIS} <= sent


def test_batches_are_wrong_only_where_they_should_be():
    sound = batch(5, 2)
    ((header, records),) = decode_records(sound)
    assert (len(records), header.record_count) == (2, 2)
    changed = patched(sound, 57, ">i", 3)
    assert (changed[:17], changed[21:57]) == (sound[:17], sound[21:57])
    assert with_payload(sound, sound[61:], 0) == sound


# --- choosing


def test_a_pattern_is_a_part_of_an_id_or_a_whole_one_with_a_star():
    assert {case.id for _, case in chosen_cases(["produce/acks 2"])} == {"produce/acks 2"}
    starred = {case.id for _, case in chosen_cases(["produce/acks*"])}
    assert len(starred) > 3
    assert all(case_id.startswith("produce/acks") for case_id in starred)
    assert len(chosen_cases([])) == len(catalogue())
    assert len(chosen_cases(["produce/acks 2", "produce/acks 1"])) == 2


def test_a_case_has_the_same_number_whatever_is_chosen():
    everything = {case.id: number for number, case in chosen_cases([])}
    for number, case in chosen_cases(["heartbeat"]):
        assert everything[case.id] == number


def test_a_pattern_that_matches_nothing_is_refused():
    with pytest.raises(UsageError, match="no request matches 'nonsense'"):
        chosen_cases(["nonsense"])


# --- cases that cannot be prepared


def test_a_case_that_cannot_be_prepared_is_an_observation():
    def run(probe: Probe) -> None:
        raise probes.PreparationError("there is no coordinator")

    (one,) = run_case(Case(id="x/y", run=run), Recorder(1))
    assert one == Observation(request="preparation", outcome="failed: there is no coordinator")
    assert one.outcome != RESPONSE
