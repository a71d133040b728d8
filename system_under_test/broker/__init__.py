"""The broker: partitions, produce, fetch, replication, lifecycle."""
