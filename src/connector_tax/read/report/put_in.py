"""On the embedded engine: the tax that its model gives, beside the one that was found."""

from connector_tax.base.documents.aggregate import Aggregate
from connector_tax.read.figures.questions import Tax, confidence_words
from connector_tax.read.figures.words import percent


def put_in_text(aggregate: Aggregate, tax: Tax) -> str:
    """``put in +31 %, inside``; nothing where it is not known."""
    rows = () if aggregate.put_in is None else aggregate.put_in.taxes
    place = (tax.config, tax.metric, tax.reference)
    row = next((r for r in rows if (r.config, r.metric, r.reference) == place), None)
    if row is None or row.tax is None:
        return ""
    where = {True: ", inside", False: ", outside the interval", None: ""}[row.held]
    return f"put in {percent(row.tax)}{where}"


def about_put_in(aggregate: Aggregate) -> list[str]:
    """What the lines with "put in" are, and how many of the intervals hold it."""
    found = aggregate.put_in
    if found is None or not found.asked:
        return []
    return [
        f"Put in: the tax that the model of the embedded engine itself gives, from {found.launches:,} launches of each configuration in "
        f"virtual time. {found.held} of {found.asked} intervals of {confidence_words(aggregate)} hold it."
    ]
