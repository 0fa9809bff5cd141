"""The taxes that a model gives beside those that were found in it."""

from collections.abc import Sequence

from connector_tax.base.documents.aggregate import PutIn, PutInRow
from connector_tax.base.documents.rates import PutInFile, PutInTax, ReferenceRatesFile
from connector_tax.read.stats.main_taxes import MainTax


def put_in(
    found: PutInFile | None, rates: ReferenceRatesFile | None, chosen: Sequence[MainTax], confidence: float
) -> PutIn | None:
    """Of the taxes that stand at the reference rates; None where nothing was put in that is known."""
    if found is None or rates is None:
        return None
    rows = [
        PutInRow(
            config=tax.config,
            metric=tax.metric,
            reference=reference,
            rate_per_s=tax.rate_per_s,
            tax=tax.tax,
            held=_held(tax, chosen, confidence),
        )
        for tax in found.taxes
        for reference in rates.references_at(tax.rate_per_s)
    ]
    once = {(r.config, r.metric, r.rate_per_s): r.held for r in rows if r.held is not None}
    return PutIn(launches=found.launches, asked=len(once), held=sum(once.values()), taxes=tuple(rows))


def _held(tax: PutInTax, chosen: Sequence[MainTax], confidence: float) -> bool | None:
    place = (tax.config, tax.metric, tax.rate_per_s, tax.input_tokens, tax.output_tokens)
    own = (m.row(confidence) for m in chosen)
    interval = next((row.interval for row in own if row.place == place), None)
    if tax.tax is None or interval is None or interval.low is None or interval.high is None:
        return None
    return interval.low <= tax.tax <= interval.high
