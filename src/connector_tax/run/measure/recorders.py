"""What the engines of preflight recorded of their steps: the engine's own word, after it served requests."""

from pathlib import Path

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import CampaignConfig
from connector_tax.run.engine.patching import StepTiming, recorder_heard

STEP_LOG = Path("steps") / "engine_step.jsonl"  # beside a configuration's other files


def recorders_heard(
    folder: CampaignFolder, config: CampaignConfig, tried: set[str], fits: StepTiming
) -> tuple[StepTiming, dict[str, str]]:
    """Step timing that fits and does not record is none; and of each connector why its hook times stay unknown.

    Args:
        tried: who was launched, plain among them.
        fits: as told from the engine's source files.
    """
    if not fits.available:
        return fits, {}
    timing = _heard(folder, "plain", connector=False)
    if not timing.available:
        return timing, {}
    found = {
        c.id: _heard(folder, c.id, connector=True)
        for c in config.connectors
        if c.id in tried and c.kv_transfer_config is not None
    }
    return timing, {i: heard.reason for i, heard in found.items() if heard.reason is not None}


def _heard(folder: CampaignFolder, connector_id: str, *, connector: bool) -> StepTiming:
    own = folder.preflight / connector_id
    return recorder_heard(own / STEP_LOG, own / "vllm_stderr.log", connector=connector)
