"""The reference system: our implementation of Kafka's KRaft replication."""
