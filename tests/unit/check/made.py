"""Checks whose launches were never made: the two small campaigns, filled by servers that behave as a test says."""

import sys
from itertools import chain
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import DATE, Campaign
from invented_server import Behaviour
from virtual_gpus import model_in

from connector_tax.base.documents.cell import CellDocument, cell_of
from connector_tax.base.files import read_json
from connector_tax.base.plan import config_of, read_campaign_file
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.check.campaigns import Campaigns, write_campaigns
from connector_tax.check.request import GIVEN, CheckRequest, entry_of_json

__all__ = [
    "DATE",
    "GIVEN",
    "Behaviour",
    "NOOP",
    "QUIET",
    "Campaign",
    "invalid",
    "measured",
    "model_in",
    "request",
]

NOOP = '{"kv_connector": "NoOpConnector", "kv_role": "kv_both", "kv_connector_module_path": "noop_connector"}'
# Of which cells a second of arrivals is enough, and whose requests hardly differ.
QUIET = Behaviour(ttft_ms=20.0, tpot_ms=8.0, noise=0.001, step_us=8000.0)


def request(folder: Path, text: str = NOOP, **changes: Any) -> CheckRequest:
    entry, notes = entry_of_json(text)
    model = model_in(folder / "model")
    values: dict[str, Any] = {"growth": False, "duration_s": 6.0, **changes}
    return CheckRequest(GIVEN, entry, notes, "/bin/true", "h200", "Qwen", model, **values)


def invalid(reasons: list[str], health: dict[str, Any] | None = None) -> CellDocument:
    """A cell with these reasons, and with this of its client's and its clock's health."""
    value = read_json(Path(__file__).parents[2] / "data" / "documents" / "cell.json")
    return cell_of({**value, "verdict": "invalid", "reasons": reasons, "health": health or {}}, "cell.json")


def measured(
    folder: Path,
    *,
    own: Behaviour = QUIET,
    again: Behaviour = QUIET,
    documents: dict[str, dict[str, Any]] | None = None,
    **changes: Any,
) -> Campaigns:
    """Every launch of a check done.

    Args:
        documents: by configuration, keys of ``cell.json`` in the first mode that are to be written differently.
    """
    campaigns = write_campaigns(request(folder, **changes), folder)
    behaviours = {"plain": QUIET, PLAIN_AGAIN: again, GIVEN: own}
    for k, place in enumerate(campaigns.folders.values()):
        config = config_of(read_campaign_file(place.campaign_file))
        made = Campaign(place.root, config=config, behaviours=behaviours, seed=1 + k)
        rates = (campaigns.rates_per_s[1], campaigns.rates_per_s[2])
        for launch in chain.from_iterable(campaigns.rounds()):
            if launch.folder == place:
                extra = (documents or {}).get(launch.config, {}) if k == 0 else {}
                made.measure(launch.config, launch.phase, rates=rates, **extra)
    return campaigns
