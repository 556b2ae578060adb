"""Compiled functions that take long, called so that Ctrl-C gets through.

Python answers a signal between two of its own instructions, in the main thread: not while that is inside compiled code.
So the work is done in another thread, which needs no lock of Python's, while the main thread waits and listens. After an
interrupt that thread is left to itself; its work is bounded, and whoever called it must not touch what it works on.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class _Worker:
    """A thread that waits for work."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.tasks: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self.results: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="tangens", daemon=True).start()

    def _work(self) -> None:
        while True:
            task = self.tasks.get()
            try:
                self.results.put((task(), None))
            except BaseException as error:  # for whoever waits
                self.results.put((None, error))
            del task


_idle: list[_Worker] = []


def interruptible(task: Callable[[], T]) -> T:
    """The result of task(); a signal that arrives meanwhile is answered at once, if this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        return task()
    worker = _idle.pop() if _idle else _Worker()
    if worker.process != os.getpid():  # a fork has no threads but its own
        worker = _Worker()
    worker.tasks.put(task)
    result, error = worker.results.get()
    _idle.append(worker)  # only now: after an interrupt it may still be at work
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]
