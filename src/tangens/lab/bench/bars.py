"""Times as bars."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeVar

Kind = TypeVar("Kind", bound=Hashable)


def draw(
    panel: Any,
    title: str,
    groups: Sequence[str],
    kinds: Mapping[Kind, tuple[str, str]],
    times: Mapping[tuple[str, Kind], float],
) -> None:
    """Bars on a logarithmic scale, in groups side by side.

    Args:
        panel: matplotlib's axes.
        title: of the panel.
        groups: one below each group.
        kinds: label and colour of each kind of bar.
        times: by group and kind [µs]; a bar that has none is left out.

    """
    from matplotlib.patches import Patch

    for x, group in enumerate(groups):
        there = [kind for kind in kinds if (group, kind) in times]
        for k, kind in enumerate(there):
            place = x + (k - (len(there) - 1) / 2) * 0.15
            drawn = panel.bar(place, times[group, kind], width=0.14, color=kinds[kind][1])
            panel.bar_label(drawn, fmt="{:,.0f}", fontsize=7, rotation=90, padding=2)
    shown = [kinds[kind] for kind in kinds if any((group, kind) in times for group in groups)]
    handles = [Patch(color=color, label=label) for label, color in shown]
    panel.set(title=title, ylabel="median [µs]", yscale="log", xticks=range(len(groups)), xticklabels=groups)
    low, high = panel.get_ylim()
    panel.set_ylim(low, 4 * high)  # room for the numbers on the tallest bars
    panel.legend(handles=handles, fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.06), frameon=False)
