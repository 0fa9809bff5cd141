"""Figure 2: TPOT p90 against the send rate."""

from connector_tax.base.documents.aggregate import Aggregate
from connector_tax.read.figures.rate_lines import draw_rate_lines
from connector_tax.read.figures.style import Drawn, Omitted


def draw(aggregate: Aggregate) -> Drawn | Omitted:
    return draw_rate_lines(
        aggregate,
        figure_name="fig2_tpot_vs_rate",
        quantity="tpot_ms",
        name="TPOT",
        axis_label="TPOT p90 (ms per output token)",
    )
