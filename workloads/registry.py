"""The registries of workloads and of clients; `docs/how-to/add-a-workload.md` shows how to add to them."""

from harness.contracts.client import ClientType
from harness.contracts.registry import Registry
from harness.contracts.workload import WorkloadType

WORKLOADS: Registry[WorkloadType] = Registry(
    kind="workload",
    group="laststand.workloads",
    built_in={
        "append": "workloads.append:APPEND",
        "consumer-group": "workloads.group_workload:CONSUMER_GROUP",
        "transactions": "workloads.transactions:TRANSACTIONS",
    },
)

CLIENTS: Registry[ClientType] = Registry(
    kind="client",
    group="laststand.clients",
    built_in={
        "native": "workloads.clients.native:NATIVE",
        "confluent": "workloads.clients.confluent:CONFLUENT",
        "java": "workloads.clients.java_client:JAVA",
    },
)
