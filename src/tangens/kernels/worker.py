"""A process that compiles kernels, one for each line it reads, and answers with the same line."""

from __future__ import annotations

import importlib
import sys


def main() -> None:
    """Compile until there is nothing more to do."""
    for line in sys.stdin:
        module, name = line.strip().split(":")
        kernel = getattr(importlib.import_module(module), name).as_kernel
        kernel.compile(kernel.declared)
        print(line.strip(), flush=True)


if __name__ == "__main__":
    main()
