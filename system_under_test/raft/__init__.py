"""The metadata quorum: KRaft's Raft ."""
