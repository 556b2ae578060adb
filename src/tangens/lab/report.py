"""How results leave the library: JSON with the environment they were measured in, tables, figures."""

from __future__ import annotations

import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tangens.errors import MissingExtra, OptionError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PACKAGES = ("tangens", "mujoco", "mujoco-mjx", "pin", "numba", "numpy", "jax")


def environment() -> dict[str, Any]:
    """What a figure depends on besides the code: versions, processor, threads."""
    return {
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "platform": platform.platform(),
    }


def write_json(payload: dict[str, Any], file: str | os.PathLike[str]) -> Path:
    """Write a result; arrays become lists, numbers that JSON cannot say become null."""
    path = Path(file)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(_plain(payload), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise OptionError(f"cannot write {path}: {error.strerror}") from None
    return path


def require_figures(what: str) -> None:
    """Refuse before any work is done where matplotlib is missing; `what` needs it."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingExtra(what, "matplotlib", "lab") from None


def save_figure(figure: Figure, file: str | os.PathLike[str]) -> Path:
    """Write a figure and free it."""
    from matplotlib import pyplot as plt

    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path


def new_figure(rows: int, columns: int, width: float = 10.0, height: float = 4.0) -> tuple[Any, Any]:
    """A figure with a grid of axes, drawn without a screen."""
    require_figures("drawing a figure")
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    return plt.subplots(rows, columns, figsize=(width, height), layout="constrained")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
