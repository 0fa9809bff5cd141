"""What a hypothesis is decided on."""

from collections.abc import Mapping
from dataclasses import dataclass, field

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
