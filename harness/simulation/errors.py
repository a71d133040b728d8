"""Exceptions of the simulated world. The simulated kernel raises `OSError` and its subclasses."""


class SimulationError(Exception):
    """An error of the simulation itself, never of the system inside it."""


class ForbiddenInSimulation(SimulationError):  # noqa: N818 - the project's word for it
    """Code in the world tried to use the real machine; the message names the alternative."""


class NodeIsDead(SimulationError):  # noqa: N818 - the project's word for it
    """An interface of a process that has ended was used. The call had no effect."""


class Deadlock(SimulationError):  # noqa: N818 - the project's word for it
    """No event can happen any more, and the awaited condition is not true."""


class Livelock(SimulationError):  # noqa: N818 - the project's word for it
    """Callbacks run without end while virtual time does not advance."""


class LimitReached(SimulationError):  # noqa: N818 - the project's word for it
    """A run exceeded a limit. That is a separate outcome, never a pass."""


class CodecMismatch(SimulationError):  # noqa: N818 - the project's word for it
    """A message did not survive encoding and decoding."""


class IllegalPowerCut(SimulationError):  # noqa: N818 - the project's word for it
    """The requested power cut is impossible on a real machine, for example because it loses synced bytes."""
