"""The order of configurations inside a phase: a seeded random permutation.

Slow drift of the machine (temperature, clocks) then falls on configurations at random instead of
always on the last ones.
"""

from connector_tax.base.config import CampaignConfig
from connector_tax.base.records.cell import Phase
from connector_tax.base.seeds import stream


def run_order(config: CampaignConfig, phase: Phase) -> tuple[str, ...]:
    ids = config.members(phase)
    return tuple(ids[i] for i in stream(config.seed, "order", phase).permutation(len(ids)))
