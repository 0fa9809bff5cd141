"""The order of configurations in a phase: a seeded random permutation.

Slow drift of the machine (temperature, clocks) then affects random configurations, not always the last ones.
"""

from connector_tax.base.config import CampaignConfig
from connector_tax.base.records.cell import Phase
from connector_tax.base.seeds import stream


def run_order(config: CampaignConfig, phase: Phase) -> tuple[str, ...]:
    ids = config.members(phase)
    return tuple(ids[i] for i in stream(config.seed, "order", phase).permutation(len(ids)))
