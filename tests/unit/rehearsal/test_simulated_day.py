"""A few hours of tests/soak/simulated_day.py; and what it looks for is found."""

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "soak"))
from read_through import but_for_ends
from simulated_day import aggregated, cells_of, day, strike, unnamed

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.run.rehearsal.campaign import rehearse


def test_what_was_not_hit_has_the_very_numbers_of_an_undisturbed_day(tmp_path: Path) -> None:
    root, _ = rehearse(day(3.0), tmp_path, seed=1, processes=1)
    sound = aggregated(root)
    hits = strike(CampaignFolder(root), 7, random.Random(3))
    struck = aggregated(root)
    assert unnamed(struck, hits) == []
    lost = {h.cell for h in hits if h.cell is not None}
    before, after = (but_for_ends(cells_of(a, hits), *lost) for a in (sound, struck))
    assert before and before == after
    assert len(before) == len(sound["cells"]) - sum(h.cell is not None for h in hits)
