"""Figure 1: TTFT p90 against the send rate."""

from connector_tax.base.documents.aggregate import Aggregate
from connector_tax.read.figures.rate_lines import draw_rate_lines
from connector_tax.read.figures.style import Drawn, Omitted


def draw(aggregate: Aggregate) -> Drawn | Omitted:
    return draw_rate_lines(
        aggregate,
        figure_name="fig1_ttft_vs_rate",
        quantity="ttft_ms",
        name="TTFT",
        axis_label="TTFT p90 (ms, from intended send)",
    )
