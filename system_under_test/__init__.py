"""The reference broker and controller: Kafka's KRaft replication, written to be read.

This package does not depend on the harness. A node reaches the outside world only through the interfaces of
`system_under_test.runtime` and through plain `asyncio`, so the same code runs in a deterministic simulation and
on a real machine.
"""
