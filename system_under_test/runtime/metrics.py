"""Metrics of a node: values under the names that Kafka's own metrics have once they are in Prometheus.

Kafka publishes MBeans such as `kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions`. The JMX exporter,
with the rules that are customary for Kafka, joins the parts in lower case: one gauge is called
`kafka_server_replicamanager_underreplicatedpartitions`. A meter such as `IsrShrinksPerSec` becomes a counter,
`kafka_server_replicamanager_isrshrinks_total`: Prometheus computes rates itself. What Kafka does not have begins
with `laststand_`.

A node computes its metrics when they are requested. Nothing is counted on their behalf that the node would not
count anyway, and there is no timer.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

GAUGE, COUNTER = "gauge", "counter"
PER_SECOND = "PerSec"
_SEPARATORS = re.compile(r"[^a-z0-9_]")
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Labels = tuple[tuple[str, str], ...]


class Sample(NamedTuple):
    """One value of one metric.

    Attributes:
        name: For example "kafka_controller_kafkacontroller_activecontrollercount".
        kind: `GAUGE` or `COUNTER`. A counter only grows while the node runs.
        value: A number; its unit follows from the name.
        labels: (name, value), for example (("topic", "t"), ("partition", "0")).
    """

    name: str
    kind: str
    value: float
    labels: Labels = ()

    @property
    def series(self) -> str:
        """The name with the labels, as Prometheus writes them."""
        if not self.labels:
            return self.name
        inside = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in self.labels)
        return f"{self.name}{{{inside}}}"


def gauge(domain: str, kind: str, name: str, value: float, labels: Labels = ()) -> Sample:
    """Returns the sample of a gauge by the parts of its MBean.

    Args:
        domain: For example "kafka.server".
        kind: The key "type", for example "ReplicaManager".
        name: The key "name", or the name of an attribute.
        value: Its value now.
        labels: Further keys.
    """
    return Sample(_joined(domain, kind, name), GAUGE, value, labels)


def meter(domain: str, kind: str, name: str, count: float, labels: Labels = ()) -> Sample:
    """Returns the sample of a meter, whose name ends in "PerSec": how often it happened since the node started."""
    return Sample(
        f"{_joined(domain, kind, name.removesuffix(PER_SECOND))}_total", COUNTER, count, labels
    )


def _joined(*parts: str) -> str:
    return _SEPARATORS.sub("_", "_".join(parts).lower())


def exposition(samples: Iterable[Sample]) -> str:
    """Returns samples in the text format of Prometheus (version 0.0.4), ordered by name."""
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.name, []).append(sample)
    lines = []
    for name in sorted(by_name):
        found = by_name[name]
        lines.append(f"# TYPE {name} {found[0].kind}")
        lines.extend(f"{one.series} {_number(one.value)}" for one in found)
    return "".join(f"{line}\n" for line in lines)


def _number(value: float) -> str:
    """Returns a number as Prometheus reads it; whole ones without a fraction or an exponent."""
    whole = int(value)
    return str(whole) if whole == value else repr(value)
