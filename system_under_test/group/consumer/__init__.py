"""Consumer groups whose partitions the coordinator assigns (KIP-848)."""
