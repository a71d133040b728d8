"""Broker registration: which brokers may register, and the consequences of an unclean shutdown.

A registration carries the broker epoch of the broker's clean-shutdown marker. If it is the registered epoch,
the broker had flushed all its logs before it stopped. Otherwise it may have lost the end of its logs, and with
ELR on it leaves ISR and ELR before it can be elected.
"""

from typing import Any
from uuid import UUID

from system_under_test.controller.broker_changes import remove_from_partitions
from system_under_test.controller.heartbeats import Sessions
from system_under_test.controller.partition_change import PartitionChange
from system_under_test.controller.policy import Decision, Policy, mark
from system_under_test.metadata.image import BrokerRegistration, ClusterImage
from system_under_test.metadata.records import RegisterBrokerRecord
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import broker_registration_response, millis

RESERVED_DIRECTORY_IDS = 100
"""Directory ids below this number have a special meaning in Kafka (unassigned, lost, migrating)."""


def register_broker(
    image: ClusterImage,
    request: Any,
    *,
    sessions: Sessions,
    now_ns: int,
    next_offset: int,
    policy: Policy,
) -> Decision:
    """Decides on a BrokerRegistrationRequest. The caller begins a session if there are records.

    Args:
        image: The latest image.
        request: A BrokerRegistrationRequest.
        sessions: Soft state; only read.
        now_ns: Monotonic time.
        next_offset: Offset of the next metadata record, which becomes the broker epoch.
        policy: The static part.
    """
    refusal = _refusal(image, request, sessions, now_ns, policy)
    if refusal is not None:
        return refusal
    known = image.brokers.get(request.broker_id)
    if known is not None and known.incarnation_id == request.incarnation_id:
        return _amend(known, request)
    is_clean = _is_clean(known, request, policy)
    changes = [] if known is None else _clean_up(image, known, is_clean, policy)
    record = RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=next_offset,
        address=_address(request),
        log_dirs=tuple(request.log_dirs),
    )
    registered = mark(
        _registration_mark(known, request),
        broker_id=request.broker_id,
        broker_epoch=next_offset,
        previous_broker_epoch=request.previous_broker_epoch,
    )
    return Decision(
        # The clean-up comes first, so that the new incarnation is not a member after any prefix of the batch.
        records=(*(change.record for change in changes), record),
        response=registration_response(ErrorCode.NONE, next_offset),
        marks=(registered, *(found for change in changes for found in change.marks())),
    )


def registration_response(error: ErrorCode, broker_epoch: int = -1) -> Any:
    """Returns the response to a registration."""
    return broker_registration_response.BrokerRegistrationResponse(
        throttle_time=millis(0), error_code=error, broker_epoch=broker_epoch
    )


def _refusal(
    image: ClusterImage, request: Any, sessions: Sessions, now_ns: int, policy: Policy
) -> Decision | None:
    if request.cluster_id != policy.cluster_id:
        return _refuse(request, ErrorCode.INCONSISTENT_CLUSTER_ID, "registration-refused-cluster")
    known = image.brokers.get(request.broker_id)
    # [REG-1] Two processes with one broker id must not replace each other in turn; the first keeps the id until
    # its session has expired.
    if (
        policy.rules("REG-1")
        and known is not None
        and known.incarnation_id != request.incarnation_id
        and sessions.is_valid(known, now_ns)
    ):
        return _refuse(
            request, ErrorCode.DUPLICATE_BROKER_REGISTRATION, "registration-refused-duplicate"
        )
    if not _is_well_formed(image, request):
        return _refuse(request, ErrorCode.INVALID_REGISTRATION, "registration-refused-invalid")
    if not _supports_features(image, request):
        return _refuse(request, ErrorCode.UNSUPPORTED_VERSION, "registration-refused-features")
    return None


def _refuse(request: Any, error: ErrorCode, name: str) -> Decision:
    return Decision(
        response=registration_response(error), marks=(mark(name, broker_id=request.broker_id),)
    )


def _is_well_formed(image: ClusterImage, request: Any) -> bool:
    directories = request.log_dirs
    if not directories or len(set(directories)) != len(directories):
        return False
    # The codec reads the all-zero uuid as None; it is one of the reserved ids.
    if any(
        directory is None or directory.int < RESERVED_DIRECTORY_IDS for directory in directories
    ):
        return False
    owned_by_others: set[UUID] = set()
    for broker in image.brokers.values():
        if broker.broker_id != request.broker_id:
            owned_by_others.update(broker.log_dirs)
    if owned_by_others.intersection(directories):
        return False
    return bool(request.listeners) and request.incarnation_id is not None and request.broker_id >= 0


def _supports_features(image: ClusterImage, request: Any) -> bool:
    # Kafka treats a feature that a broker does not name as supported at level 0 only. Here it counts as supported,
    # because all brokers run the same code.
    return all(
        feature.min_supported_version
        <= image.features.get(feature.name, feature.min_supported_version)
        <= feature.max_supported_version
        for feature in request.features
    )


def _amend(known: BrokerRegistration, request: Any) -> Decision:
    # [LIFE-2] The same process registers again because it did not get the first response: its epoch and flags
    # stay.
    record = RegisterBrokerRecord(
        broker_id=known.broker_id,
        incarnation_id=known.incarnation_id,
        broker_epoch=known.broker_epoch,
        address=_address(request),
        fenced=known.fenced,
        in_controlled_shutdown=known.in_controlled_shutdown,
        log_dirs=tuple(request.log_dirs),
    )
    return Decision(
        records=(record,),
        response=registration_response(ErrorCode.NONE, known.broker_epoch),
        marks=(mark("registration-amended", broker_id=known.broker_id),),
    )


def _registration_mark(known: BrokerRegistration | None, request: Any) -> str:
    # Describes the proof that the broker sent, whether or not this profile requires it.
    if known is None:
        return "first-registration"
    if request.previous_broker_epoch == known.broker_epoch:
        return "clean-registration"
    return "unclean-registration"


def _is_clean(known: BrokerRegistration | None, request: Any, policy: Policy) -> bool:
    if known is None or policy.features.shutdown_detection != "epoch_match":
        return False
    # [REG-2] The epochs must be equal: a marker of an earlier shutdown may have survived and names an older epoch.
    if policy.rules("REG-2"):
        return bool(request.previous_broker_epoch == known.broker_epoch)
    return bool(request.previous_broker_epoch >= 0)


def _clean_up(
    image: ClusterImage, known: BrokerRegistration, is_clean: bool, policy: Policy
) -> list[PartitionChange]:
    detection = policy.features.shutdown_detection
    in_isr = image.partitions_with_in_isr(known.broker_id)
    # [REG-3] A broker without proof of a clean shutdown may have lost records that it had acknowledged.
    if image.elr_on and detection != "none" and not is_clean and policy.rules("REG-3"):
        affected = list(in_isr)
        # [ELR-4] After fencing the broker is in the ELR and not in the ISR, so this is the more important part.
        if policy.rules("ELR-4"):
            affected += [
                registration
                for registration in image.partitions_with_in_elr(known.broker_id)
                if known.broker_id not in registration.isr
            ]
        return remove_from_partitions(image, policy, known.broker_id, affected, is_unclean=True)
    # [REG-4] If its session expired but the fencing event has not run, the effects of that event are applied now.
    # Kafka 3.9 and older do nothing here (KAFKA-18106).
    if detection == "epoch_match" and policy.rules("REG-4"):
        return remove_from_partitions(image, policy, known.broker_id, in_isr)
    return []


def _address(request: Any) -> str:
    listener = request.listeners[0]
    return f"{listener.host}:{listener.port}"
