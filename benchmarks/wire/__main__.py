"""Times three brokers and three controllers on loopback under librdkafka: `python -m benchmarks.wire`.

Replication factor 3, min ISR 2, acks=all. Three things are measured, each for records of 20 bytes and of 1 kB:

* **single**: every produce request carries one record (`batch.num.messages=1`). A connection has one request
  in flight, as in Kafka, so a single producer is bound by latency; the load comes from many producers at once;
* **batched**: the same records with librdkafka's usual batching;
* **consume**: one consumer reads all of it again from the start.

The last column shows where the time goes: CPU seconds of brokers, controllers and client per wall second. When
their sum is near the number of cores, the machine is the limit, not waiting.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from harness.environments.local.standing import LocalCluster

PARTITIONS = 6
WARM_UP_S = 2.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Load:
    """Counts of delivery reports. Mutable: callbacks count."""

    acked: int = 0
    failed: int = 0

    def delivered(self, error: Any, _message: Any) -> None:
        """Counts one delivery report."""
        if error is None:
            self.acked += 1
        else:
            self.failed += 1


def cpu_seconds(pid: int) -> float:
    """Returns the CPU time that a process has used."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        parts = file.read().rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / TICKS_PER_S


def cpu_by_role(cluster: LocalCluster) -> dict[str, float]:
    """Returns CPU seconds so far of the brokers, the controllers and this process."""
    used = {"brokers": 0.0, "controllers": 0.0, "client": time.process_time()}
    for name, node in cluster.nodes.items():
        role = "brokers" if name.startswith("b") else "controllers"
        used[role] += cpu_seconds(node.pid)
    return used


def measured(
    cluster: LocalCluster, seconds: float, work: Callable[[float], int]
) -> tuple[float, dict[str, float]]:
    """Runs work(until) and returns what it counted per second, and the CPU seconds per second by role."""
    before = cpu_by_role(cluster)
    began = time.perf_counter()
    count = work(began + seconds)
    elapsed = time.perf_counter() - began
    after = cpu_by_role(cluster)
    return count / elapsed, {role: (after[role] - before[role]) / elapsed for role in after}


def producers(cluster: LocalCluster, count: int, **settings: Any) -> list[Producer]:
    """Returns producers with acks=all that never give up during a benchmark."""
    return [
        Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "acks": "all",
                "enable.metrics.push": False,
                "queue.buffering.max.messages": 100000,
                **settings,
            }
        )
        for _ in range(count)
    ]


def keep_busy(
    handles: list[Producer], topic: str, size: int, outstanding: int, until_s: float, load: Load
) -> int:
    """Keeps a number of records in flight per producer until a moment; returns how many were acknowledged."""
    value = os.urandom(size)
    partition = 0
    acked_before = load.acked
    while time.perf_counter() < until_s:
        for handle in handles:
            handle.poll(0)
            while len(handle) < outstanding:
                partition = (partition + 1) % PARTITIONS
                handle.produce(topic, value, partition=partition, on_delivery=load.delivered)
        time.sleep(0.0005)
    return load.acked - acked_before


def create_topic(cluster: LocalCluster, topic: str) -> None:
    """Creates a topic with replication factor 3 and min ISR 2."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = NewTopic(
        topic,
        num_partitions=PARTITIONS,
        replication_factor=3,
        config={"min.insync.replicas": "2"},
    )
    admin.create_topics([new])[topic].result(30)


def bench_produce(
    cluster: LocalCluster, topic: str, size: int, seconds: float, *, single: bool
) -> tuple[float, dict[str, float], Load]:
    """Returns acknowledged records per second, CPU by role, and the load."""
    create_topic(cluster, topic)
    load = Load()
    if single:
        handles = producers(cluster, 24, **{"linger.ms": 0, "batch.num.messages": 1})
        outstanding = PARTITIONS
    else:
        handles = producers(cluster, 3, **{"linger.ms": 20, "batch.size": 1_000_000})
        outstanding = 20000 if size < 100 else 6000
    keep_busy(handles, topic, size, outstanding, time.perf_counter() + WARM_UP_S, load)
    rate, cpu = measured(
        cluster,
        seconds,
        lambda until: keep_busy(handles, topic, size, outstanding, until, load),
    )
    for handle in handles:
        handle.flush(30)
    return rate, cpu, load


def bench_consume(
    cluster: LocalCluster, topic: str, expected: int, limit_s: float
) -> tuple[float, dict[str, float], int]:
    """Reads a topic from the start; returns records per second, CPU by role, and how many were read."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            "fetch.max.bytes": 10_000_000,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])

    def read(until_s: float) -> int:
        count = 0
        while count < expected and time.perf_counter() < until_s:
            for message in consumer.consume(5000, 0.2):
                error = message.error()
                if error is None:
                    count += 1
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise RuntimeError(str(error))
        return count

    try:
        counted = 0

        def work(until_s: float) -> int:
            nonlocal counted
            counted = read(until_s)
            return counted

        rate, cpu = measured(cluster, limit_s, work)
        return rate, cpu, counted
    finally:
        consumer.close()


def print_row(what: str, size: int, rate: float, cpu: dict[str, float], note: str) -> None:
    """Prints one line of the table."""
    shares = "  ".join(f"{role} {used:.2f}" for role, used in cpu.items())
    print(
        f"{what:<10}{size:>8}{rate:>13.0f}{rate * size / 1e6:>9.2f}   {shares}  {note}",
        flush=True,
    )


def main(arguments: list[str] | None = None) -> int:
    """Prints the table; returns 1 if a record failed or was not read back."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wire", description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="per measurement")
    options = parser.parse_args(arguments)
    problems = 0
    with tempfile.TemporaryDirectory(prefix="laststand-bench-") as directory:
        cluster = LocalCluster.create(Path(directory), brokers=3, controllers=3)
        with cluster:
            cluster.start()
            cluster.wait_ready(60)
            print(f"{'what':<10}{'bytes':>8}{'acked/s':>13}{'MB/s':>9}   CPU seconds per second")
            for single in (True, False):
                for size in (20, 1000):
                    word = "single" if single else "batched"
                    topic = f"{word}-{size}"
                    rate, cpu, load = bench_produce(
                        cluster, topic, size, options.seconds, single=single
                    )
                    problems += load.failed
                    print_row(word, size, rate, cpu, f"{load.failed} failed")
                    if single:
                        continue
                    rate, cpu, count = bench_consume(
                        cluster, topic, load.acked, 10 * options.seconds
                    )
                    problems += count < load.acked
                    print_row("consume", size, rate, cpu, f"{count} of {load.acked} read")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
