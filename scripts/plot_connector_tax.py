"""Draw Figures 1 to 9 of a campaign from its aggregate.json; says which were left out, and why.

A part of ``connector-tax report``.
"""

from connector_tax.base.command import of_root
from connector_tax.read.figures.draw_all import draw_figures

if __name__ == "__main__":
    of_root(
        __doc__,
        lambda root: "\n".join(
            f"Figure {entry.number}: {entry.title if entry.drawn else f'left out: {entry.reason}'}"
            for entry in draw_figures(root)
        ),
    )
