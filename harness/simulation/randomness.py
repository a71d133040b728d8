"""All random numbers of a run, from one root seed.

Each concern draws from its own stream, named by a stable tuple: `("net", "b1", "b2")`, `("disk", "b1")`,
`("fault",)`. The seed of a stream is a hash of the root seed and the name, so that an additional draw in one
stream does not change another. Therefore, two runs with the same seed and different configurations are comparable.
"""

from collections.abc import Hashable
from hashlib import blake2b
from random import Random

# FoundationDB's figures: a point is active in a quarter of the runs. Then it fires often enough to be reached, and
# rarely enough not to dominate the run.
BUGGIFY_ACTIVATION = 0.25
BUGGIFY_FIRE_MIN = 0.10
BUGGIFY_FIRE_MAX = 0.25


class RandomTree:
    """Provides the named streams of one run.

    Args:
        seed: The root seed.
        buggify: Whether `NodeRandom.buggify` may return true.
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
        """Returns the randomness interface of a node."""
        return NodeRandom(self, node_name)


class NodeRandom:
    """The randomness interface of one node. A new process of the node continues its streams.

    Attributes:
        always: Points at which `buggify` takes the rare branch; a schedule can set them.
    """

    def __init__(self, tree: RandomTree, node_name: str) -> None:
        self._tree = tree
        self._node_name = node_name
        self.always: set[str] = set()
        self._fire_probability: dict[str, float] = {}

    def stream(self, *name: str | int) -> Random:
        """Returns the node's stream of that name; the same object every time."""
        return self._tree.stream("node", self._node_name, *name)

    def buggify(self, name: str) -> bool:
        """Whether to take a rare but legal branch.

        The first call for a point determines whether the point is active in this run.
        """
        if name in self.always:
            return True
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
