"""What a hypothesis is decided on, and what it comes to."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from connector_tax.base.documents.aggregate import (
    Answer,
    Conclusion,
    Hypothesis,
    HypothesisId,
    Missing,
    Outcome,
    VerdictNumbers,
)
from connector_tax.base.statistics.bootstrap import Estimate
from connector_tax.read.stats.trends import Trend


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the hypotheses are decided on; every estimate at ``ref_safe``.

    Attributes:
        headline: config -> tax of TTFT p90, Phase A shape (``main_taxes``).
        by_input: config -> TTFT p90 tax over the input length, averaged over output lengths.
        by_output: config -> TPOT p90 tax over the output length, averaged over input lengths.
        absent: config -> the code of why it has no numbers; those of the campaign that have some are not in it.
        members: every configuration of the campaign.
        stacks: config of a MultiConnector -> the configurations it is made of.
        n_blocks: of those whose headline tax is taken over blocks of launches, how many; others are of one launch.
    """

    headline: Mapping[str, Estimate]
    by_input: Mapping[str, Trend]
    by_output: Mapping[str, Trend]
    absent: Mapping[str, str]
    stacks: Mapping[str, tuple[str, ...]]
    confidence: float
    members: frozenset[str] = frozenset()
    n_blocks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One hypothesis about one subject.

    Attributes:
        n_blocks: of the taxes that decide, the fewest; None where nothing is decided.
        missing: why it is not testable.
        p_value: the smallest p at which the interval of confidence 1 - p still decides so; None where nothing is decided.
        p_holm: the same, adjusted for all verdicts that were tested together.
    """

    id: HypothesisId
    subject: str
    outcome: Outcome
    conclusions: tuple[Conclusion, ...]
    numbers: VerdictNumbers
    p_value: float | None = None
    p_holm: float | None = None
    n_blocks: int | None = None
    missing: tuple[Missing, ...] = ()

    @property
    def answer(self) -> Answer:
        return Answer(
            outcome=self.outcome,
            conclusions=self.conclusions,
            numbers=self.numbers,
            p_value=self.p_value,
            p_holm=self.p_holm,
        )

    def row(self, at_equal_host_speed: Answer | None) -> Hypothesis:
        """Of ``hypotheses`` in ``aggregate.json``."""
        return Hypothesis(
            id=self.id,
            subject=self.subject,
            n_blocks=self.n_blocks,
            missing=self.missing,
            at_equal_host_speed=at_equal_host_speed,
            **msgspec.structs.asdict(self.answer),
        )
