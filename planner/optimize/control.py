"""A person's hand on an optimization."""

import threading


class Control:
    """Of any thread: a pause is heard between evaluations, `cancel` also ends those that run."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self.going = threading.Event()
        self.going.set()

    def pause(self) -> None:
        self.going.clear()

    def go_on(self) -> None:
        self.going.set()

    def cancel(self) -> None:
        self.cancelled.set()
        self.going.set()
