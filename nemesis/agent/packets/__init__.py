"""Packet faults: nft rules, queueing disciplines and sockets of a network namespace."""
