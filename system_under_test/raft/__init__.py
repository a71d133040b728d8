"""The metadata quorum: KRaft's variant of Raft (KIP-595, KIP-996)."""
