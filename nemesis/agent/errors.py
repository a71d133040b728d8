"""What an agent says when something cannot be done."""


class AgentError(Exception):
    """A command cannot be carried out; one sentence."""
