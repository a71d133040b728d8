"""The reference broker and controller: Kafka's KRaft replication, written to be read.

Nothing in here knows of the harness. A node meets the outside through the doors of
`system_under_test.runtime` and through plain `asyncio`, which is why the same code runs in a
deterministic simulation and on a real machine.
"""
