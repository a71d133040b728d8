"""The metadata quorum: KRaft's Raft (replication-protocol section 17)."""
