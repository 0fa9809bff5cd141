"""Questions that the page asks of a campaign, beside those that figures ask too."""

from connector_tax.base.documents.aggregate import Aggregate, MeasuredCell
from connector_tax.read.figures.questions import Tax, reference_rate


def loaded_cells(aggregate: Aggregate, config: str) -> list[MeasuredCell]:
    """Usable cells of Phase A at ref_safe."""
    at = reference_rate(aggregate, "ref_safe")
    return [cell for cell in aggregate.measured("a", config) if cell.rate_per_s == at]


def why_not_phase_a(aggregate: Aggregate, tax: Tax) -> str:
    """Of a tax that another phase's launch gives: why Phase A's cell does not; empty where nothing says it."""
    found = (t.reason for t in aggregate.taxes if t.phase == "a" and t.place == tax.place)
    return next(found, None) or ""
