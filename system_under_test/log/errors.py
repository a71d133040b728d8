"""What can be wrong with an append; nothing was written when one of these is raised."""


class BatchTooLargeError(Exception):
    """A producer's batch is larger than `max.message.bytes`."""


class OutOfOrderOffsetError(Exception):
    """Fetched batches do not continue the log at its end."""


class LogDirectoryError(Exception):
    """A log directory cannot belong to this node as it is. The message states the remedy."""
