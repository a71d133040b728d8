"""A response that is converted when it is there: now, or when its future is done."""

import asyncio
from collections.abc import Callable
from typing import Any


def converted(response: Any, convert: Callable[[Any], Any]) -> Any:
    """Returns a converted response, or the future of one; errors and cancellations pass unchanged."""
    if not isinstance(response, asyncio.Future):
        return convert(response)
    later: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def complete(found: "asyncio.Future[Any]") -> None:
        if later.done():
            return
        if found.cancelled():
            later.cancel()
        elif (error := found.exception()) is not None:
            later.set_exception(error)
        else:
            later.set_result(convert(found.result()))

    response.add_done_callback(complete)
    return later
