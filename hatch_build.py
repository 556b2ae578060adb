"""Names the wheel: with compiled kernels inside it is for one Python on one platform, without them for all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelTag(BuildHookInterface):  # type: ignore[misc]
    """Asks for the tag of this interpreter and platform where `make wheel` has put kernels into the package."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Say what the wheel is for; an editable install takes no kernels along."""
        if version != "editable" and any((Path(self.root) / "src" / "tangens" / "_kernels").glob("*.kernel")):
            build_data["pure_python"], build_data["infer_tag"] = False, True
