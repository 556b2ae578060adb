"""Compiled functions that take long, called so that Ctrl-C gets through.

Python answers a signal between two of its own instructions, in the main thread: not while that is inside compiled code.
So the work is done in another thread, which needs no lock of Python's, while the main thread waits and listens. After
an interrupt that thread is left to itself; its work is bounded, and whoever called it must not touch what it works on.
A process that ends meanwhile waits for a moment, and then leaves without tidying up: compiled code cannot be stopped,
and must not find its libraries unloaded.
"""

from __future__ import annotations

import atexit
import os
import queue
import sys
import threading
import time
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
_abandoned: list[_Worker] = []
_GRACE = 2.0  # how long the end of the process waits for abandoned work [s]
_INTERRUPTED = 130  # the exit status of a process that Ctrl-C has ended


@atexit.register
def _leave() -> None:
    deadline = time.monotonic() + _GRACE
    for worker in _abandoned:
        if worker.process != os.getpid():
            continue
        try:
            worker.results.get(timeout=max(deadline - time.monotonic(), 0.0))
        except queue.Empty:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(_INTERRUPTED)


def interruptible(task: Callable[[], T]) -> T:
    """The result of task(); a signal that arrives meanwhile is answered at once, if this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        return task()
    worker = _idle.pop() if _idle else _Worker()
    if worker.process != os.getpid():  # a fork has no threads but its own
        worker = _Worker()
    worker.tasks.put(task)
    try:
        result, error = worker.results.get()
    except BaseException:
        _abandoned.append(worker)
        raise
    _idle.append(worker)
    if error is not None:
        raise error
    return result
