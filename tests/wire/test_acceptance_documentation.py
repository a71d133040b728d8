"""The clients' own documentation examples run unchanged.

The examples are not copied: they are taken, when the test runs, from the README that each installed package
carries in its metadata, found by a line that only the wanted example has. The only thing replaced is the address
of the broker, because the examples name hosts or ports that the test's cluster does not have; where one relies
on a default address, the client's default is set before it runs. What an example leaves to its reader
(`some_data_source`) is defined before it. Examples that read forever are stopped once they have printed what was
sent.
"""

import importlib.metadata
import os
import re
import shlex
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from wire_helpers import SharedCluster, eventually, new_name

pytestmark = pytest.mark.wire

ADDRESSES = ("mybroker1,mybroker2", "mybroker", "localhost:9092", "localhost:1234")
"""Addresses that stand in the examples, longest first."""


def examples_of(package: str) -> list[str]:
    """Returns the code blocks of an installed package's README (Markdown or reStructuredText)."""
    try:
        metadata = importlib.metadata.metadata(package)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{package} is not installed")
    readme = str(metadata.get_payload() or metadata.get("Description", ""))
    fenced = re.findall(r"^```(?:python|bash)\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    directives = re.findall(
        r"^\.\. code-block:: (?:python|bash)\n\n((?:    .*\n|\n)+)", readme, re.MULTILINE
    )
    return fenced + [textwrap.dedent(block) for block in directives]


def example(package: str, line: str) -> str:
    """Returns the first example of a package that contains a line."""
    for block in examples_of(package):
        if line in block:
            return block
    raise AssertionError(f"the README of this {package} has no example with {line!r}")


def with_address(text: str, bootstrap: str) -> str:
    """Returns an example that uses the cluster."""
    for address in ADDRESSES:
        text = text.replace(address, bootstrap)
    return text


class Program:
    """An example as a separate program."""

    def __init__(self, directory: Path, code: str) -> None:
        path = directory / f"{new_name('example')}.py"
        path.write_text(code, encoding="utf-8")
        self.output = path.with_suffix(".out")
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-u", str(path)], stdout=output, stderr=output
            )

    def printed(self) -> str:
        """Returns what it printed so far."""
        return self.output.read_text(encoding="utf-8", errors="replace")

    def finish(self) -> str:
        """Waits for its end, which must be a good one, and returns what it printed."""
        code = self.process.wait(60)
        assert code == 0, self.printed()
        return self.printed()

    def wait_for(self, text: str) -> None:
        """Waits until it has printed something."""

        def has_printed() -> bool:
            assert self.process.poll() is None or text in self.printed(), self.printed()
            return text in self.printed()

        eventually(has_printed, what=f"the example prints {text!r}")


@pytest.fixture
def start(tmp_path: Path, bootstrap: str) -> Iterator[Callable[..., Program]]:
    """Starts an example with the cluster's address in it."""
    programs: list[Program] = []

    def begin(code: str, *, before: str = "", after: str = "") -> Program:
        programs.append(
            Program(tmp_path, "\n".join((before, with_address(code, bootstrap), after)))
        )
        return programs[-1]

    yield begin
    for program in programs:
        program.process.kill()
        program.process.wait(30)


@pytest.fixture(autouse=True)
def _foobar(cluster: SharedCluster) -> None:
    """Creates the topic whose third partition an example reads, before another one creates it with one."""
    cluster.create("foobar", partitions=3)


Start = Callable[..., Program]


# -- confluent-kafka: "Basic Producer", "Basic Consumer" and "Basic AdminClient example", "AsyncIO Producer"


def test_confluent_asyncio_producer_and_basic_consumer(start: Start) -> None:
    start(example("confluent-kafka", 'await p.produce("mytopic", value=b"hello")')).finish()
    consume = start(example("confluent-kafka", "c.subscribe(['mytopic'])"))
    consume.wait_for("Received message: hello")
    assert "Consumer error" not in consume.printed()


def test_confluent_basic_producer(start: Start) -> None:
    code = example("confluent-kafka", "in some_data_source:")
    if "schema_registry" in code:
        pytest.skip("the basic producer of this confluent-kafka's README needs a Schema Registry")
    printed = start(code, before="some_data_source = ['one', 'two']").finish()
    assert printed.count("Message delivered to mytopic [0]") == 2


def test_confluent_admin_client(start: Start) -> None:
    printed = start(example("confluent-kafka", "fs = a.create_topics(new_topics)")).finish()
    for topic in ("topic1", "topic2"):
        created = f"Topic {topic} created" in printed
        assert created or "TOPIC_ALREADY_EXISTS" in printed, printed


# -- kafka-python: sections "KafkaConsumer" and "KafkaProducer", and the commands at the top

DEFAULT_ADDRESS = """\
import kafka
for client in (kafka.KafkaConsumer, kafka.KafkaProducer, kafka.KafkaAdminClient):
    client.DEFAULT_CONFIG["bootstrap_servers"] = {bootstrap!r}
"""


def test_kafka_python_producer_examples(start: Start, bootstrap: str) -> None:
    parts = [
        "for _ in range(100):",
        "result = future.get(timeout=60)",
        "producer.flush()",
        "producer.send('foobar', key=b'foo', value=b'bar')",
        "headers=[('content-encoding'",
        "metrics = producer.metrics()",
        "value_serializer=JsonSerializer()",
        "key_serializer=DefaultSerializer()",
        "compression_type='gzip'",
    ]
    code = "\n".join(example("kafka-python", part) for part in parts)
    program = start(
        code,
        before=DEFAULT_ADDRESS.format(bootstrap=bootstrap),
        after="producer.flush()\nprint('offset', result.offset)",
    )
    assert "offset" in program.finish()


@pytest.mark.long
def test_kafka_python_consumer_examples(start: Start, bootstrap: str) -> None:
    before = DEFAULT_ADDRESS.format(bootstrap=bootstrap)
    send = "from kafka import KafkaProducer; p = KafkaProducer(); "
    # Readers that begin at the end: send until they see something.
    for line, topic in (
        ("consumer = KafkaConsumer('my_favorite_topic')", "my_favorite_topic"),
        ("group_id='my_favorite_group'", "my_favorite_topic"),
    ):
        word = new_name("word")
        start(f"{send}p.send('{topic}', b'first').get(30); p.close()", before=before).finish()
        reader = start(example("kafka-python", line), before=before)
        start(
            f"{send}import time\nfor _ in range(400):\n    p.send('{topic}', b'{word}')\n    time.sleep(0.1)",
            before=before,
        )
        reader.wait_for(word)


def test_kafka_python_manual_assignment(start: Start, bootstrap: str) -> None:
    before = DEFAULT_ADDRESS.format(bootstrap=bootstrap)
    reader = start(
        example("kafka-python", "consumer.assign([TopicPartition('foobar', 2)])"),
        before=before,
        after="print('got', msg.partition)",
    )
    start(
        "from kafka import KafkaProducer\nimport time\np = KafkaProducer()\n"
        "for _ in range(400):\n    p.send('foobar', b'x', partition=2)\n    time.sleep(0.1)",
        before=before,
    )
    assert "got 2" in reader.finish()


@pytest.mark.long
def test_kafka_python_commands(bootstrap: str, tmp_path: Path) -> None:
    block = example("kafka-python", "python -m kafka.consumer -b localhost:9092")
    lines = [
        line.strip() for line in block.splitlines() if line.strip() and not line.startswith("#")
    ]
    outputs = []
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for line in lines:
        if line.startswith("pip "):
            continue
        command = with_address(line, bootstrap)
        if "topics create" in command:
            # Another test of this cluster may have created it.
            command += " || true"
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {command}"],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=tmp_path,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, f"{shlex.quote(command)}: {done.stderr}"
        outputs.append(done.stdout)
    assert "foo message" in outputs[-1]


# -- aiokafka: sections "AIOKafkaProducer" and "AIOKafkaConsumer"


def test_aiokafka_producer_and_consumer(start: Start) -> None:
    send = example("aiokafka", 'producer.send_and_wait("my_topic", b"Super message")')
    start(send).finish()
    reader = start(example("aiokafka", 'group_id="my-group"'))
    deadline_s = time.monotonic() + 40
    # It starts at the end: send until it has seen something.
    while "Super message" not in reader.printed() and time.monotonic() < deadline_s:
        start(send).finish()
    reader.wait_for("Super message")
    assert "my_topic 0" in reader.printed()
