"""A figure is the same whatever the user's ``matplotlibrc`` says: others draw it again, byte by byte."""

import matplotlib

from connector_tax.read.figures.style import drawing_style


def test_what_the_user_prefers_is_not_in_a_figure() -> None:
    with drawing_style("x"):
        usual = dict(matplotlib.rcParams)
    with matplotlib.rc_context(
        {"savefig.bbox": "tight", "savefig.facecolor": "red", "xtick.direction": "in"}
    ):
        before = matplotlib.rcParams["savefig.facecolor"]
        with drawing_style("x"):
            assert dict(matplotlib.rcParams) == usual
        assert matplotlib.rcParams["savefig.facecolor"] == before
