"""What the simulated world raises, apart from what the simulated kernel raises (`OSError` and its children)."""


class SimulationError(Exception):
    """Something about the simulation itself, never about the system inside it."""


class ForbiddenInSimulation(SimulationError):  # noqa: N818 - the project's word for it
    """Code inside the world reached for the real machine; the message names the door to use instead."""


class NodeIsDead(SimulationError):  # noqa: N818 - the project's word for it
    """A door of a process that was killed was touched. Nothing happened."""


class Deadlock(SimulationError):  # noqa: N818 - the project's word for it
    """Nothing can ever happen again, and what was waited for has not happened."""


class Livelock(SimulationError):  # noqa: N818 - the project's word for it
    """Callbacks run without end while virtual time stands still."""


class LimitReached(SimulationError):  # noqa: N818 - the project's word for it
    """A run used up what it was allowed to use. That is an outcome of its own, never a pass."""


class CodecMismatch(SimulationError):  # noqa: N818 - the project's word for it
    """A message did not survive encoding and decoding."""


class IllegalPowerCut(SimulationError):  # noqa: N818 - the project's word for it
    """A power cut was asked for that no machine could produce, such as losing synced bytes."""
