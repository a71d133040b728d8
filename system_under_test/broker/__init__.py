"""The broker: partitions, produce, fetch, replication, lifecycle (sections 5 to 15)."""
