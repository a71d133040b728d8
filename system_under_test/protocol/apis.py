"""The table of APIs: what a node serves on the wire, in which versions, and which version its handlers use.

A request arrives in any version between `min_version` and `max_version`. The wire layer converts it to the
canonical version, a handler responds in that version, and the response is converted back. APIs that are not in
this table are neither advertised nor served. `docs/protocol.md` is generated from it.
"""

from system_under_test.protocol import messages as m
from system_under_test.protocol.api import BROKER, CONTROLLER, Api, Canonical
from system_under_test.protocol.api import one_range as _one
from system_under_test.protocol.group_apis import GROUP_APIS
from system_under_test.protocol.transaction_apis import TRANSACTION_APIS

__all__ = ["APIS", "BROKER", "CONTROLLER", "Api", "Canonical"]

_OTHERS: tuple[Api, ...] = (
    Api(
        key=0,
        name="Produce",
        module="produce",
        roles=(BROKER,),
        canonical=(
            *_one(3, 12, m.produce_request.ProduceRequest, m.produce_response.ProduceResponse),
            *_one(
                13,
                13,
                m.produce_by_id_request.ProduceRequest,
                m.produce_by_id_response.ProduceResponse,
            ),
        ),
        # Old librdkafka silently sends uncompressed batches to brokers that do not advertise version 0. Kafka
        # advertises version 0 and refuses it.
        advertised_min=0,
        purpose="append record batches to partitions",
        notes=(
            "Versions 0 to 2 are advertised and refused, as by Kafka 4: without them old "
            "librdkafka silently stops compressing. The records of a partition are exactly one "
            "batch of format 2, which is stored unchanged, except for the timestamps of a topic with "
            "LogAppendTime; in others the timestamp type becomes CreateTime. An incomplete batch "
            "behind it is ignored. Its checksum is verified, and its records are compared with its "
            "header. gzip is decompressed for that, up to 64 MiB; other codecs are not. zstd needs "
            "version 7. These are refused: control batches, writes to `__consumer_offsets` and "
            "`__transaction_state`, and, from profile `kafka-4.0` on, records more than an hour ahead "
            "of the broker's clock (message.timestamp.after.max.ms). "
            "With acks=0 an error closes the connection. Version 13 identifies topics by id."
        ),
    ),
    Api(
        key=1,
        name="Fetch",
        module="fetch",
        roles=(BROKER,),
        canonical=(
            Canonical(
                first=4,
                last=12,
                request=m.fetch_by_name_request.FetchRequest,
                response=m.fetch_by_name_response.FetchResponse,
            ),
            Canonical(
                first=13,
                last=18,
                request=m.fetch_request.FetchRequest,
                response=m.fetch_response.FetchResponse,
            ),
        ),
        purpose="read record batches; followers use it as well",
        notes=(
            "Versions up to 12 identify topics by name, later ones by id. The high watermark that "
            "version 18 has in requests is for the metadata log, which brokers do not serve. Sessions (KIP-227) "
            "are declined as by a broker whose session cache is full: a full fetch gets session "
            "id 0, an incremental one FETCH_SESSION_ID_NOT_FOUND. From version 11 on, a consumer "
            "may fetch from a follower, which serves it below its own high watermark (KIP-392). No "
            "broker has a rack, so no response names a preferred replica. A response has at most 55 MiB "
            "(fetch.max.bytes). Versions 4 and 5 get NOT_LEADER_OR_FOLLOWER instead of KAFKA_STORAGE_ERROR."
        ),
    ),
    Api(
        key=1,
        name="Fetch",
        module="fetch",
        roles=(CONTROLLER,),
        canonical=_one(13, 17, m.fetch_request.FetchRequest, m.fetch_response.FetchResponse),
        purpose="read the metadata log",
    ),
    Api(
        key=2,
        name="ListOffsets",
        module="list_offsets",
        roles=(BROKER,),
        canonical=_one(
            1,
            10,
            m.list_offsets_request.ListOffsetsRequest,
            m.list_offsets_response.ListOffsetsResponse,
        ),
        purpose="log start, log end, offset of a timestamp",
        notes=(
            "The timestamp -3 (the largest timestamp) is allowed from version 7 on, -4 (the "
            "earliest local offset) from 8, and -5 (the latest tiered offset; there is none) "
            "from 9; earlier versions get UNSUPPORTED_VERSION. Versions up to 4 get "
            "LEADER_NOT_AVAILABLE instead of OFFSET_NOT_AVAILABLE. Compressed batches are not "
            "decompressed: for a timestamp inside such a batch the response is the first "
            "offset of the batch. The time limit of version 10 is for tiered storage, which does "
            "not exist."
        ),
    ),
    Api(
        key=3,
        name="Metadata",
        module="metadata",
        roles=(BROKER,),
        canonical=_one(
            0, 13, m.metadata_request.MetadataRequest, m.metadata_response.MetadataResponse
        ),
        purpose="brokers, topics, leaders",
        notes=(
            "`controller_id` is the id of a broker, as in Kafka with KRaft. In version 0 an empty list "
            "of topics means all of them, and offline replicas are left out with "
            "REPLICA_NOT_AVAILABLE."
        ),
    ),
    Api(
        key=18,
        name="ApiVersions",
        module="api_versions",
        roles=(BROKER, CONTROLLER),
        canonical=_one(
            0,
            4,
            m.api_versions_request.ApiVersionsRequest,
            m.api_versions_response.ApiVersionsResponse,
        ),
        purpose="this table",
        notes=(
            "The codec itself responds, always with response header 0. The response to an "
            "unknown version is UNSUPPORTED_VERSION in version 0, with the range to use "
            "(KIP-511); to a malformed software name or version it is INVALID_REQUEST."
        ),
    ),
    Api(
        key=19,
        name="CreateTopics",
        module="create_topics",
        roles=(BROKER, CONTROLLER),
        canonical=_one(
            2,
            7,
            m.create_topics_request.CreateTopicsRequest,
            m.create_topics_response.CreateTopicsResponse,
        ),
        purpose="create topics; a broker forwards it to the active controller",
    ),
    Api(
        key=20,
        name="DeleteTopics",
        module="delete_topics",
        roles=(BROKER, CONTROLLER),
        canonical=_one(
            1,
            6,
            m.delete_topics_request.DeleteTopicsRequest,
            m.delete_topics_response.DeleteTopicsResponse,
        ),
        purpose="delete topics by name or id; a broker forwards it",
        notes=("Versions up to 5 have names only."),
    ),
    Api(
        key=21,
        name="DeleteRecords",
        module="delete_records",
        roles=(BROKER,),
        canonical=_one(
            0,
            2,
            m.delete_records_request.DeleteRecordsRequest,
            m.delete_records_response.DeleteRecordsResponse,
        ),
        purpose="raise the log start of partitions (KIP-107)",
        notes=(
            "Responds when all replicas that are alive have the new log start. Refused for "
            "`__consumer_offsets` and for topics whose cleanup policy is not delete."
        ),
    ),
    Api(
        key=22,
        name="InitProducerId",
        module="init_producer_id",
        roles=(BROKER,),
        canonical=_one(
            0,
            5,
            m.init_producer_id_request.InitProducerIdRequest,
            m.init_producer_id_response.InitProducerIdResponse,
        ),
        purpose="id and epoch of an idempotent or transactional producer",
    ),
    Api(
        key=23,
        name="OffsetForLeaderEpoch",
        module="offset_for_leader_epoch",
        roles=(BROKER,),
        canonical=_one(
            2,
            4,
            m.offset_for_leader_epoch_request.OffsetForLeaderEpochRequest,
            m.offset_for_leader_epoch_response.OffsetForLeaderEpochResponse,
        ),
        purpose="the end of a leader epoch; consumers detect truncations with it (KIP-320)",
    ),
    Api(
        key=32,
        name="DescribeConfigs",
        module="describe_configs",
        roles=(BROKER,),
        canonical=_one(
            1,
            4,
            m.describe_configs_request.DescribeConfigsRequest,
            m.describe_configs_response.DescribeConfigsResponse,
        ),
        purpose="settings of topics, of brokers, and of the cluster for all topics",
    ),
    Api(
        key=34,
        name="AlterReplicaLogDirs",
        module="alter_replica_log_dirs",
        roles=(BROKER,),
        canonical=_one(
            1,
            2,
            m.alter_replica_log_dirs_request.AlterReplicaLogDirsRequest,
            m.alter_replica_log_dirs_response.AlterReplicaLogDirsResponse,
        ),
        purpose="move replicas of this broker to other log directories (KIP-113)",
        notes=(
            "The replica stays in use while it is copied. For a replica that the broker does not have, the "
            "directory is remembered until the broker ends, and the response is an error, as in Kafka."
        ),
    ),
    Api(
        key=35,
        name="DescribeLogDirs",
        module="describe_log_dirs",
        roles=(BROKER,),
        canonical=_one(
            1,
            4,
            m.describe_log_dirs_request.DescribeLogDirsRequest,
            m.describe_log_dirs_response.DescribeLogDirsResponse,
        ),
        purpose="log directories of this broker, and sizes of the replicas in them",
        notes="The sizes of the volumes are not reported (-1).",
    ),
    Api(
        key=37,
        name="CreatePartitions",
        module="create_partitions",
        roles=(BROKER, CONTROLLER),
        canonical=_one(
            0,
            3,
            m.create_partitions_request.CreatePartitionsRequest,
            m.create_partitions_response.CreatePartitionsResponse,
        ),
        purpose="add partitions to topics; a broker forwards it",
    ),
    Api(
        key=43,
        name="ElectLeaders",
        module="elect_leaders",
        roles=(BROKER, CONTROLLER),
        canonical=_one(
            0,
            2,
            m.elect_leaders_request.ElectLeadersRequest,
            m.elect_leaders_response.ElectLeadersResponse,
        ),
        purpose="elect preferred leaders, or any live replica (unclean); a broker forwards it",
        notes=("Version 0 elects preferred leaders only, and has no error for the request."),
    ),
    Api(
        key=44,
        name="IncrementalAlterConfigs",
        module="incremental_alter_configs",
        roles=(BROKER, CONTROLLER),
        canonical=_one(
            0,
            1,
            m.incremental_alter_configs_request.IncrementalAlterConfigsRequest,
            m.incremental_alter_configs_response.IncrementalAlterConfigsResponse,
        ),
        purpose="change settings of topics, or of the cluster for all topics; a broker forwards it",
    ),
    Api(
        key=45,
        name="AlterPartitionReassignments",
        module="alter_partition_reassignments",
        roles=(BROKER, CONTROLLER),
        canonical=_one(
            0,
            1,
            m.alter_reassignments_request.AlterPartitionReassignmentsRequest,
            m.alter_reassignments_response.AlterPartitionReassignmentsResponse,
        ),
        purpose="give partitions other replicas, or cancel that; a broker forwards it",
        notes=("A partition that the request names twice gets INVALID_REQUEST."),
    ),
    Api(
        key=46,
        name="ListPartitionReassignments",
        module="list_partition_reassignments",
        roles=(BROKER, CONTROLLER),
        canonical=_one(
            0,
            0,
            m.list_reassignments_request.ListPartitionReassignmentsRequest,
            m.list_reassignments_response.ListPartitionReassignmentsResponse,
        ),
        purpose="reassignments in progress; a broker forwards it",
    ),
    Api(
        key=52,
        name="Vote",
        module="vote",
        roles=(CONTROLLER,),
        canonical=_one(2, 2, m.vote_request.VoteRequest, m.vote_response.VoteResponse),
        purpose="elections and pre-votes of the metadata quorum",
    ),
    Api(
        key=53,
        name="BeginQuorumEpoch",
        module="begin_quorum_epoch",
        roles=(CONTROLLER,),
        canonical=_one(
            1,
            1,
            m.begin_quorum_epoch_request.BeginQuorumEpochRequest,
            m.begin_quorum_epoch_response.BeginQuorumEpochResponse,
        ),
        purpose="a new quorum leader introduces itself",
    ),
    Api(
        key=54,
        name="EndQuorumEpoch",
        module="end_quorum_epoch",
        roles=(CONTROLLER,),
        canonical=_one(
            1,
            1,
            m.end_quorum_epoch_request.EndQuorumEpochRequest,
            m.end_quorum_epoch_response.EndQuorumEpochResponse,
        ),
        purpose="a quorum leader resigns",
    ),
    Api(
        key=55,
        name="DescribeQuorum",
        module="describe_quorum",
        roles=(BROKER, CONTROLLER),
        canonical=_one(
            0,
            2,
            m.describe_quorum_request.DescribeQuorumRequest,
            m.describe_quorum_response.DescribeQuorumResponse,
        ),
        purpose="leader, voters and observers of the metadata quorum; a broker forwards it",
    ),
    Api(
        key=56,
        name="AlterPartition",
        module="alter_partition",
        roles=(CONTROLLER,),
        canonical=_one(
            3,
            3,
            m.alter_partition_request.AlterPartitionRequest,
            m.alter_partition_response.AlterPartitionResponse,
        ),
        purpose="a leader proposes an ISR",
    ),
    Api(
        key=59,
        name="FetchSnapshot",
        module="fetch_snapshot",
        roles=(CONTROLLER,),
        canonical=_one(
            0,
            0,
            m.fetch_snapshot_request.FetchSnapshotRequest,
            m.fetch_snapshot_response.FetchSnapshotResponse,
        ),
        purpose="read a part of a snapshot of the metadata log",
        notes="Version 1 adds directory ids and endpoints, which only dynamic voters need.",
    ),
    Api(
        key=60,
        name="DescribeCluster",
        module="describe_cluster",
        roles=(BROKER,),
        canonical=_one(
            0,
            2,
            m.describe_cluster_request.DescribeClusterRequest,
            m.describe_cluster_response.DescribeClusterResponse,
        ),
        purpose="brokers, and which of them are fenced",
    ),
    Api(
        key=61,
        name="DescribeProducers",
        module="describe_producers",
        roles=(BROKER,),
        canonical=_one(
            0,
            0,
            m.describe_producers_request.DescribeProducersRequest,
            m.describe_producers_response.DescribeProducersResponse,
        ),
        purpose="what a partition knows of its idempotent producers (KIP-664)",
    ),
    Api(
        key=62,
        name="BrokerRegistration",
        module="broker_registration",
        roles=(CONTROLLER,),
        canonical=_one(
            4,
            4,
            m.broker_registration_request.BrokerRegistrationRequest,
            m.broker_registration_response.BrokerRegistrationResponse,
        ),
        purpose="a broker registers",
    ),
    Api(
        key=63,
        name="BrokerHeartbeat",
        module="broker_heartbeat",
        roles=(CONTROLLER,),
        canonical=_one(
            1,
            1,
            m.broker_heartbeat_request.BrokerHeartbeatRequest,
            m.broker_heartbeat_response.BrokerHeartbeatResponse,
        ),
        purpose="a broker keeps its session",
    ),
    Api(
        key=67,
        name="AllocateProducerIds",
        module="allocate_producer_ids",
        roles=(CONTROLLER,),
        canonical=_one(
            0,
            0,
            m.allocate_producer_ids_request.AllocateProducerIdsRequest,
            m.allocate_producer_ids_response.AllocateProducerIdsResponse,
        ),
        purpose="a block of producer ids for a broker",
    ),
    Api(
        key=73,
        name="AssignReplicasToDirs",
        module="assign_replicas_to_dirs",
        roles=(CONTROLLER,),
        canonical=_one(
            0,
            0,
            m.assign_replicas_to_dirs_request.AssignReplicasToDirsRequest,
            m.assign_replicas_to_dirs_response.AssignReplicasToDirsResponse,
        ),
        purpose="a broker with several log directories reports where its replicas are (KIP-858)",
    ),
    Api(
        key=75,
        name="DescribeTopicPartitions",
        module="describe_topic_partitions",
        roles=(BROKER,),
        canonical=_one(
            0,
            0,
            m.describe_topic_partitions_request.DescribeTopicPartitionsRequest,
            m.describe_topic_partitions_response.DescribeTopicPartitionsResponse,
        ),
        purpose="partitions with ISR, ELR and last-known ELR, page by page (KIP-966)",
    ),
)

APIS: tuple[Api, ...] = tuple(
    sorted((*_OTHERS, *GROUP_APIS, *TRANSACTION_APIS), key=lambda api: api.key)
)
"""In the order of the keys. To serve another API, add its row."""

MESSAGE_NAMES: tuple[str, ...] = tuple(
    dict.fromkeys(name for api in APIS for name in (api.name, f"{api.name}Response"))
)
"""What experiments call messages: requests by their API, responses with the word after it."""
