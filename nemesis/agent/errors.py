"""The error with which an agent responds when a command fails."""


class AgentError(Exception):
    """A command failed; the message is one sentence."""
