"""One or two examples for the help of every command. A test parses each of them."""

_EXAMPLES: dict[str, tuple[str, ...]] = {
    "": (
        "reproduce last-replica-standing --profile kafka-4.0",
        "explain latest",
        "help cluster up",
    ),
    "reproduce": (
        "reproduce last-replica-standing --profile kafka-4.0",
        "reproduce kafka-bug --variant B-31 --on local --attempts 5",
    ),
    "new": ("new my-experiment", "new groups --workload consumer-group"),
    "run": ("run examples/power-cuts.toml --seed 7", "run my.toml --on docker --quiet --json"),
    "replay": ("replay latest", "replay latest --on docker --attempts 10"),
    "check": ("check latest --selftest", "check history.edn --model cas-register"),
    "explain": ("explain latest", "explain latest lost-acked-write"),
    "trace": ("trace latest", "trace latest --output trace.json"),
    "report": ("report latest", "report latest --messages"),
    "list": ("list --verdict invalid --since 2d", "list --limit 10 --json"),
    "serve": ("serve", "serve --port 8700"),
    "site": ("site public",),
    "compare": ("compare --vary profile=kafka-4.0,kafka-4.1 --seeds 200",),
    "swarm": ("swarm --seeds 100", "swarm my.toml --first-seed 100 --seeds 50"),
    "nightly": ("nightly --budget 2h", "nightly --resume nightly-2026-11-22"),
    "shrink": ("shrink latest", "shrink latest --on docker --attempts 10"),
    "defects": ("defects", "defects run B-18"),
    "defects list": ("defects list", "defects list hw-not-gated --json"),
    "defects run": ("defects run", "defects run B-18 B-19"),
    "defects search": ("defects search --budget 2h", "defects search B-18 B-19 --runs 100"),
    "conformance": ("conformance --against apache-kafka:4.1.2",),
    "demo": ("demo", "demo --seeds 5"),
    "doctor": ("doctor", "doctor --on docker"),
    "cluster": ("cluster up", "cluster status", "cluster kill b1", "cluster down"),
    "cluster up": ("cluster up --brokers 3 --profile kafka-4.1",),
    "cluster status": ("cluster status --json",),
    "cluster down": ("cluster down",),
    "cluster kill": ("cluster kill b1",),
    "cluster stop": ("cluster stop b1",),
    "cluster start": ("cluster start b1",),
    "cluster pause": ("cluster pause c11",),
    "cluster resume": ("cluster resume c11",),
    "broker": ("broker --config node.toml",),
    "bundle": ("bundle spark",),
    "bundle spark": ("bundle spark -o workers.zip",),
    "image": ("image build",),
    "image build": ("image build", "image build --from-debootstrap"),
    "system": ("system list", "system fetch apache-kafka 4.1.2"),
    "system fetch": ("system fetch apache-kafka 4.1.2",),
    "system list": ("system list",),
    "reset": ("reset",),
    "gc": ("gc --keep-nights 30 --keep-failing",),
    "completion": ("completion bash",),
    "help": ("help run", "help cluster up"),
}
"""Examples by the words of the command, without the name of the program."""


def examples_of(program: str) -> str:
    """Returns the end of a command's help.

    Args:
        program: The command with the name of the program, for example "laststand cluster up".
    """
    name, _, words = program.partition(" ")
    lines = [f"  {name} {example}" for example in _EXAMPLES.get(words, ())]
    return "\n".join(["examples:", *lines]) if lines else ""
