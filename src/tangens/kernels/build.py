"""Compiling kernels ahead of time: by worker processes, in parallel, with progress.

    python -m tangens.kernels.build               # what is missing, into the package, without what is out of date
    python -m tangens.kernels.build --user        # into the user's cache folder

Where a kernel turns out to be missing when it is called, the same is done on demand, into the user's cache folder.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue

from tangens.cache import announce
from tangens.kernels import store
from tangens.kernels.functions import CompiledFunction, Kernel

_HEAVIEST = ("step", "differentiate", "linearize", "placement_terms", "parameter_terms")
"""Compiled first, so that no worker is left with a long one at the end."""
_PACKAGE = Path(__file__).parents[1]
_LOG = logging.getLogger("tangens")


def all_kernels() -> list[Kernel]:
    """Every kernel of the package that is compiled ahead of time."""
    found: dict[str, Kernel] = {}
    for path in sorted(_PACKAGE.rglob("*.py")):
        if b"tangens.kernels import" not in path.read_bytes():  # importing all modules would take longer
            continue
        module = ".".join(path.relative_to(_PACKAGE.parent).with_suffix("").parts)
        for value in vars(importlib.import_module(module)).values():
            if isinstance(value, CompiledFunction) and value.declared:
                found[f"{value.__module__}:{value.__qualname__}"] = value.as_kernel
    return [found[name] for name in sorted(found)]


def build(
    folder: Path, workers: int, report: Callable[[int, int, str], None], kernels: Sequence[Kernel] | None = None
) -> int:
    """Compile the kernels that are missing into a folder, of all or of some; returns how many there were."""
    missing = sorted(
        (one for one in kernels or all_kernels() if not one.is_kept()),
        key=lambda one: _HEAVIEST.index(one.__name__) if one.__name__ in _HEAVIEST else len(_HEAVIEST),
    )
    tasks: SimpleQueue[str] = SimpleQueue()
    for one in missing:
        tasks.put(f"{one.__module__}:{one.__qualname__}")
    done: list[str] = []

    def serve() -> None:
        with _worker(folder) as process:
            while True:
                try:
                    task = tasks.get_nowait()
                except Empty:
                    return
                assert process.stdin is not None and process.stdout is not None  # noqa: PT018
                process.stdin.write(f"{task}\n")
                process.stdin.flush()
                if process.stdout.readline().strip() != task:
                    raise RuntimeError(f"compiling {task} failed; what its process printed is above")
                done.append(task)
                report(len(done), len(missing), task)

    with ThreadPoolExecutor(max(1, min(workers, len(missing)))) as pool:
        for running in [pool.submit(serve) for _ in range(min(workers, len(missing)))]:
            running.result()
    return len(missing)


@contextmanager
def _worker(folder: Path) -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | store.worker_settings() | {store.WORKER: "1", store.KERNEL_FOLDER: str(folder)}
    source = str(Path(__file__).parents[2])
    environment["PYTHONPATH"] = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        [sys.executable, "-m", "tangens.kernels.worker"], env=environment, text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
        process.communicate()
    finally:
        process.kill()


def on_demand(wanted: Kernel) -> None:
    """Build what is missing into the user's cache, one process at a time: kernels of rigid contact, or all others."""
    folder, rigid = store.folder_to_fill(), _is_rigid(wanted)
    with _alone(folder):
        announce(f"compiling kernels for this machine, about {'a minute' if rigid else '10 s'}, once")
        group = [one for one in all_kernels() if _is_rigid(one) == rigid]
        try:
            build(folder, os.cpu_count() or 1, lambda done, of, task: _LOG.info("%s (%d of %d)", task, done, of), group)
        except (OSError, RuntimeError) as error:  # no other process can be started: this one compiles what it needs
            _LOG.warning("kernels are compiled one by one: %s", error)


def _is_rigid(one: Kernel) -> bool:
    """Whether a kernel belongs to the contact models of the exact world, which are most of the work."""
    return bool(one.__module__.startswith("tangens.contact.rigid"))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one process at a time build into a folder; the others find all that it made."""
    try:
        import fcntl
    except ImportError:  # not on Windows: building twice does no harm
        yield
        return
    with (folder / "building.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tangens.kernels.build", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--user", action="store_true", help="into the user's cache folder, not into the package")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes that compile")
    options = parser.parse_args(arguments)
    folder = store.folder_to_fill() if options.user else store.PACKAGED
    folder.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    count = build(folder, options.workers, lambda done, of, task: print(f"[{done}/{of}] {task}", flush=True))
    print(f"{count} kernels compiled in {time.perf_counter() - started:.0f} s" if count else "all kernels are there")
    if not options.user and all(one.is_kept() for one in all_kernels()):
        store.remove_unused(folder)


if __name__ == "__main__":
    main()
