"""Work beside the UI, in a thread that does not hold the app when the person leaves."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import TypeVar

Result = TypeVar("Result")


async def aside(work: Callable[[], Result]) -> Result:
    """What `work` returns or raises; where this is cancelled, it goes on and nobody waits for it.

    A thread of the loop's own pool would be waited for: reading a large trace takes a while.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Result] = loop.create_future()

    def tell(result: Result | None, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]  # there is one where there is no error

    def run() -> None:
        result, problem = None, None
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - the thread ends here, and whoever awaits it is told
            problem = error
        with suppress(RuntimeError):  # the app has left, and its loop is closed
            loop.call_soon_threadsafe(tell, result, problem)

    Thread(target=run, daemon=True).start()
    return await answer
