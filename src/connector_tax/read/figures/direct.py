"""Names of lines at the lines' ends, moved apart so that each can be read, with a mark and a leader to where they belong."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation

from connector_tax.read.figures.forms import form_in_use
from connector_tax.read.figures.style import Look

# From the edge of the axes to the mark and to the text behind it, in sizes of the type.
MARK, TEXT = 1.3, 1.9
# From one name to the next, in sizes of the type.
APART = 1.22


@dataclass(frozen=True, slots=True)
class End:
    """The last point of a line, in data units."""

    x: float
    y: float
    text: str
    look: Look


def label_ends(axes: Axes, ends: Sequence[End]) -> None:
    """To the right of ``axes``. To be called last, since how high the axes are decides how far names have to be moved apart."""
    form, figure = form_in_use(), axes.get_figure(root=True)
    assert figure is not None
    size = form.small
    to_mark, to_text = (
        axes.transAxes + ScaledTranslation(k * size / 72, 0, figure.dpi_scale_trans) for k in (MARK, TEXT)
    )
    names, marks = [], []
    for end in ends:
        colour = end.look.colour
        names.append(
            axes.annotate(
                end.text, (end.x, end.y), xytext=(1, 0.5), textcoords=to_text, ha="left", va="center", fontsize=size,
                annotation_clip=False,
                arrowprops={"arrowstyle": "-", "color": colour, "linewidth": form.strokes * 0.8, "relpos": (0, 0.5),
                            "shrinkA": 0, "shrinkB": 0},
            )
        )  # fmt: skip
        mark = Line2D([1], [0.5], marker=end.look.marker, color=colour, markersize=form.strokes * 5.5, linestyle="none",
                      transform=to_mark, clip_on=False)  # fmt: skip
        marks.append(axes.add_line(mark))
    figure.draw_without_rendering()
    height = axes.get_window_extent().height
    wanted = [
        axes.transAxes.inverted().transform(axes.transData.transform((end.x, end.y)))[1] for end in ends
    ]
    gap = APART * size / 72 * figure.dpi / height
    for name, mark, at in zip(names, marks, apart(wanted, gap), strict=True):
        name.set_position((1, round(at, 6)))
        mark.set_ydata([round(at, 6)])


def apart(wanted: Sequence[float], gap: float) -> list[float]:
    """Places from 0 to 1 that are ``gap`` from each other, in the order of those wanted, and close to them.

    Neighbours that are too close form a group around the mean of what they want; groups that meet are one. Where all
    together are longer than the axes they stick out above and below alike.
    """
    order = sorted(range(len(wanted)), key=lambda k: (wanted[k], k))
    half = gap / 2
    groups: list[list[int]] = []
    centres: list[float] = []

    def centre(group: list[int]) -> float:
        middle, reach = sum(wanted[k] for k in group) / len(group), half * len(group)
        return 0.5 if reach > 0.5 else min(max(middle, reach), 1 - reach)

    for k in order:
        group = [k]
        while groups and centres[-1] + half * len(groups[-1]) > centre(group) - half * len(group) + 1e-12:
            group = groups.pop() + group
            centres.pop()
        groups.append(group)
        centres.append(centre(group))
    found = [0.0] * len(wanted)
    for group, middle in zip(groups, centres, strict=True):
        for place, k in enumerate(group):
            found[k] = middle + gap * (place - (len(group) - 1) / 2)
    return found
