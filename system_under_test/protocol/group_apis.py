"""The rows of the APIs of consumer groups in the table of APIs (`apis.py`)."""

from system_under_test.protocol import messages as m
from system_under_test.protocol.api import BROKER, Api
from system_under_test.protocol.api import one_range as _one

GROUP_APIS: tuple[Api, ...] = (
    Api(
        key=8,
        name="OffsetCommit",
        module="offset_commit",
        roles=(BROKER,),
        canonical=(
            *_one(
                2,
                9,
                m.offset_commit_request.OffsetCommitRequest,
                m.offset_commit_response.OffsetCommitResponse,
            ),
            *_one(
                10,
                10,
                m.offset_commit_by_id_request.OffsetCommitRequest,
                m.offset_commit_by_id_response.OffsetCommitResponse,
            ),
        ),
        purpose="store the offsets of a group",
        notes=(
            "Version 10 identifies topics by id. A generation of a group that does not exist gets "
            "GROUP_ID_NOT_FOUND from version 9 on, before that ILLEGAL_GENERATION."
        ),
    ),
    Api(
        key=9,
        name="OffsetFetch",
        module="offset_fetch",
        roles=(BROKER,),
        canonical=(
            *_one(
                1,
                9,
                m.offset_fetch_request.OffsetFetchRequest,
                m.offset_fetch_response.OffsetFetchResponse,
            ),
            *_one(
                10,
                10,
                m.offset_fetch_by_id_request.OffsetFetchRequest,
                m.offset_fetch_by_id_response.OffsetFetchResponse,
            ),
        ),
        purpose="read the offsets of a group",
        notes=(
            "Versions up to 7 are about one group. Version 1 has no error for the group: every "
            "requested partition gets it. The member and the epoch that version 9 names are checked in "
            "consumer groups, not in classic ones, as in Kafka. Version 10 identifies topics by id."
        ),
    ),
    Api(
        key=10,
        name="FindCoordinator",
        module="find_coordinator",
        roles=(BROKER,),
        canonical=_one(
            0,
            6,
            m.find_coordinator_request.FindCoordinatorRequest,
            m.find_coordinator_response.FindCoordinatorResponse,
        ),
        purpose="find the coordinator of a group or of a transactional id",
        notes=(
            "Key types other than groups and transactional ids get INVALID_REQUEST. Versions up to 3 are "
            "about one key."
        ),
    ),
    Api(
        key=11,
        name="JoinGroup",
        module="join_group",
        roles=(BROKER,),
        canonical=_one(
            0,
            9,
            m.join_group_request.JoinGroupRequest,
            m.join_group_response.JoinGroupResponse,
        ),
        purpose="become a member of a classic group",
        notes=("From version 4 on, a new member gets its id first (MEMBER_ID_REQUIRED, KIP-394)."),
    ),
    Api(
        key=12,
        name="Heartbeat",
        module="heartbeat",
        roles=(BROKER,),
        canonical=_one(
            0,
            4,
            m.heartbeat_request.HeartbeatRequest,
            m.heartbeat_response.HeartbeatResponse,
        ),
        purpose="stay a member",
    ),
    Api(
        key=13,
        name="LeaveGroup",
        module="leave_group",
        roles=(BROKER,),
        canonical=_one(
            0,
            5,
            m.leave_group_request.LeaveGroupRequest,
            m.leave_group_response.LeaveGroupResponse,
        ),
        purpose="stop being a member",
        notes=("Versions up to 2 are about one member."),
    ),
    Api(
        key=14,
        name="SyncGroup",
        module="sync_group",
        roles=(BROKER,),
        canonical=_one(
            0,
            5,
            m.sync_group_request.SyncGroupRequest,
            m.sync_group_response.SyncGroupResponse,
        ),
        purpose="get a share of the partitions",
    ),
    Api(
        key=15,
        name="DescribeGroups",
        module="describe_groups",
        roles=(BROKER,),
        canonical=_one(
            0,
            6,
            m.describe_groups_request.DescribeGroupsRequest,
            m.describe_groups_response.DescribeGroupsResponse,
        ),
        purpose="state, members and assignments of groups",
        notes=(
            "A group that does not exist gets GROUP_ID_NOT_FOUND from version 6 on, before that no "
            "error (KIP-1043)."
        ),
    ),
    Api(
        key=16,
        name="ListGroups",
        module="list_groups",
        roles=(BROKER,),
        canonical=_one(
            0,
            5,
            m.list_groups_request.ListGroupsRequest,
            m.list_groups_response.ListGroupsResponse,
        ),
        purpose="the groups that a broker coordinates",
    ),
    Api(
        key=42,
        name="DeleteGroups",
        module="delete_groups",
        roles=(BROKER,),
        canonical=_one(
            0,
            2,
            m.delete_groups_request.DeleteGroupsRequest,
            m.delete_groups_response.DeleteGroupsResponse,
        ),
        purpose="delete groups without members, and their offsets",
    ),
    Api(
        key=47,
        name="OffsetDelete",
        module="offset_delete",
        roles=(BROKER,),
        canonical=_one(
            0,
            0,
            m.offset_delete_request.OffsetDeleteRequest,
            m.offset_delete_response.OffsetDeleteResponse,
        ),
        purpose="delete offsets of a group that no member needs (KIP-496)",
    ),
    Api(
        key=68,
        name="ConsumerGroupHeartbeat",
        module="consumer_group_heartbeat",
        roles=(BROKER,),
        canonical=_one(
            0,
            1,
            m.consumer_group_heartbeat_request.ConsumerGroupHeartbeatRequest,
            m.consumer_group_heartbeat_response.ConsumerGroupHeartbeatResponse,
        ),
        purpose="be a member of a consumer group (KIP-848)",
        notes=(
            "Version 0 has no regular expressions, and the coordinator makes the member id. "
            "UNSUPPORTED_VERSION while the level of `group.version` is 0."
        ),
    ),
    Api(
        key=69,
        name="ConsumerGroupDescribe",
        module="consumer_group_describe",
        roles=(BROKER,),
        canonical=_one(
            0,
            1,
            m.consumer_group_describe_request.ConsumerGroupDescribeRequest,
            m.consumer_group_describe_response.ConsumerGroupDescribeResponse,
        ),
        purpose="members, epochs and assignments of consumer groups",
    ),
)
