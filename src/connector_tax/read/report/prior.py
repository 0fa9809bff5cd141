"""The standing of the numbers that H1 and H2 are held against; docs/prior.md has the sources."""

from connector_tax.base.documents.aggregate import Aggregate

ABOUT_PRIOR = ("H1", "H2")
SENTENCES = (
    "H1 and H2 are held against one replay of one trace on eight instances: +45 % with Mooncake and +38 % with NIXL.",
    "Its author replayed the same trace again. Plain itself took 63 % longer than the first time, and Mooncake 19 % less than plain.",
    "The gap had been put down to a cost of some 81 µs a step per 1,000 cached blocks. That cost came from a patch of the author's own "
    "and not from Mooncake (docs/prior.md). The thresholds stay as registered; the number they were taken from did not repeat.",
)


def prior_sentences(aggregate: Aggregate) -> list[str]:
    """For beside the verdicts; none where neither H1 nor H2 was judged."""
    judged = {h.id for h in aggregate.hypotheses}
    return list(SENTENCES) if judged.intersection(ABOUT_PRIOR) else []
