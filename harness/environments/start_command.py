"""The command that starts a node, in every real environment."""

from harness.contracts.system import HasFaultPoint, Node, System


def start_command(
    system: System,
    node: Node,
    directory: str,
    *,
    python: str,
    ends_with_stdin: bool = False,
    with_fault_point: bool = False,
) -> list[str]:
    """Returns the command that starts a node.

    Args:
        system: The node's system.
        node: The node.
        directory: Its directory on its host, with its files; absolute.
        python: The Python interpreter of that host.
        ends_with_stdin: Whether the node ends with the process that starts it.
        with_fault_point: As in `Settings`.
    """
    command = system.command(node, directory, python=python, ends_with_stdin=ends_with_stdin)
    if with_fault_point:
        assert isinstance(system, HasFaultPoint)
        return system.with_fault_point(command, directory, python=python)
    return command
