"""What a hypothesis is decided on, and what it comes to."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from connector_tax.base.documents.aggregate import (
    Answer,
    Hypothesis,
    HypothesisId,
    HypothesisKind,
    Outcome,
    VerdictNumbers,
)
from connector_tax.base.statistics.bootstrap import Estimate
from connector_tax.read.stats.trends import Trend

TITLES: dict[HypothesisId, str] = {
    "H1": "The tax persists on a single instance under synthetic load",
    "H2": "Mooncake costs 5 to 10 percentage points more than NIXL",
    "H3": "The framework is less than half of the connector's tax",
    "H4": "The tax of stacked connectors is the sum of their taxes",
    "H5": "The TTFT tax grows with the input length",
    "H6": "The TPOT tax grows with the output length",
}


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the hypotheses are decided on; every estimate at ``ref_safe``.

    Attributes:
        headline: config -> tax of TTFT p90, Phase A shape (``main_taxes``).
        by_input: config -> TTFT p90 tax over the input length, averaged over output lengths.
        by_output: config -> TPOT p90 tax over the output length, averaged over input lengths.
        absent: config -> why it has no numbers; those of the campaign that have some are not in it.
        members: every configuration of the campaign.
        stacks: config of a MultiConnector -> the configurations it is made of.
        over_blocks: those whose headline tax is taken over blocks of launches.
    """

    headline: Mapping[str, Estimate]
    by_input: Mapping[str, Trend]
    by_output: Mapping[str, Trend]
    absent: Mapping[str, str]
    stacks: Mapping[str, tuple[str, ...]]
    confidence: float
    members: frozenset[str] = frozenset()
    over_blocks: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Verdict:
    """One hypothesis about one subject.

    Attributes:
        kind: ``of one launch`` where an interval that decides holds no differences between launches, ``over blocks`` where all
            do; None where nothing is decided.
        p_value: the smallest p at which the interval of confidence 1 - p still decides so; None where nothing is decided.
        p_holm: the same, adjusted for all verdicts that were tested together.
    """

    id: HypothesisId
    subject: str
    outcome: Outcome
    label: str | None
    numbers: VerdictNumbers
    sentence: str
    p_value: float | None = None
    p_holm: float | None = None
    kind: HypothesisKind | None = None

    @property
    def answer(self) -> Answer:
        return Answer(
            outcome=self.outcome,
            label=self.label,
            numbers=self.numbers,
            sentence=self.sentence,
            p_value=self.p_value,
            p_holm=self.p_holm,
        )

    def row(self, at_equal_host_speed: Answer | None) -> Hypothesis:
        """Of ``hypotheses`` in ``aggregate.json``."""
        return Hypothesis(
            id=self.id,
            title=TITLES[self.id],
            subject=self.subject,
            kind=self.kind,
            at_equal_host_speed=at_equal_host_speed,
            **msgspec.structs.asdict(self.answer),
        )
