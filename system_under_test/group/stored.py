"""A classic group as its record in the log, and back."""

from system_under_test.group.members import Member
from system_under_test.group.records import StoredGroup, StoredMember
from system_under_test.group.state import Group


def stored_group(group: Group, changed_ms: int) -> StoredGroup:
    """Returns what the log keeps of a group.

    Args:
        group: The group.
        changed_ms: Wall clock.
    """
    return StoredGroup(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol_name=group.protocol_name,
        leader=group.leader or None,
        changed_ms=changed_ms,
        members=tuple(
            StoredMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.session_timeout_ms,
                subscription=member.subscription(group.protocol_name),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ),
    )


def restore_group(group: Group, stored: StoredGroup, now_ms: int) -> None:
    """Restores a stored generation in a new group; its members get a full session timeout."""
    group.restore(
        generation=stored.generation,
        protocol_type=stored.protocol_type or None,
        protocol_name=stored.protocol_name,
        leader=stored.leader or "",
        members=[
            Member(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                session_timeout_ms=member.session_timeout_ms,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                protocol_type=stored.protocol_type,
                protocols=((stored.protocol_name or "", member.subscription),),
                # Every member that was alive under the previous coordinator gets a full session timeout.
                heard_ms=now_ms,
                assignment=member.assignment,
                has_synced=True,
            )
            for member in stored.members
        ],
    )
