"""Every random number of a run, from one root seed.

Each concern draws from its own stream, named by a stable tuple: `("net", "b1", "b2")`, `("disk", "b1")`,
`("fault",)`. A stream's seed is a hash of the root seed and the name, so that one more draw in one concern
moves nothing in another. That is what makes two runs with one seed and two configurations comparable.
"""

from collections.abc import Hashable
from hashlib import blake2b
from random import Random

# FoundationDB's figures: a point takes part in a quarter of the runs, and then fires often enough to be
# met and rarely enough not to drown the run.
BUGGIFY_ACTIVATION = 0.25
BUGGIFY_FIRE_MIN = 0.10
BUGGIFY_FIRE_MAX = 0.25


class RandomTree:
    """Hands out the named streams of one run.

    Args:
        seed: The root seed.
        buggify: Whether `NodeRandom.buggify` may ever say yes.
    """

    def __init__(self, seed: int, *, buggify: bool = False) -> None:
        self.seed = seed
        self.buggify_enabled = buggify
        self.buggify_fired: dict[str, int] = {}
        self._streams: dict[tuple[Hashable, ...], Random] = {}

    def stream(self, *name: str | int) -> Random:
        """Returns the stream of that name; the same object every time."""
        stream = self._streams.get(name)
        if stream is None:
            digest = blake2b(f"{self.seed}/{name!r}".encode(), digest_size=8).digest()
            stream = self._streams[name] = Random(int.from_bytes(digest, "big"))
        return stream

    def for_node(self, node_name: str) -> "NodeRandom":
        """Returns the randomness door of a node."""
        return NodeRandom(self, node_name)


class NodeRandom:
    """The randomness door of one node. It outlives the node's processes: a restart draws on."""

    def __init__(self, tree: RandomTree, node_name: str) -> None:
        self._tree = tree
        self._node_name = node_name
        self._fire_probability: dict[str, float] = {}

    def stream(self, *name: str | int) -> Random:
        """Returns the node's stream of that name; the same object every time."""
        return self._tree.stream("node", self._node_name, *name)

    def buggify(self, name: str) -> bool:
        """Whether to take a rare but legal path here.

        The first question about a point decides whether the point takes part in this run at all.
        """
        if not self._tree.buggify_enabled:
            return False
        stream = self._tree.stream("buggify", self._node_name, name)
        probability = self._fire_probability.get(name)
        if probability is None:
            active = stream.random() < BUGGIFY_ACTIVATION
            spread = BUGGIFY_FIRE_MAX - BUGGIFY_FIRE_MIN
            probability = BUGGIFY_FIRE_MIN + spread * stream.random() if active else 0.0
            self._fire_probability[name] = probability
        if probability == 0.0 or stream.random() >= probability:
            return False
        point = f"{self._node_name}/{name}"
        fired = self._tree.buggify_fired
        fired[point] = fired.get(point, 0) + 1
        return True
