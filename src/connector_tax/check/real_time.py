"""A campaign of three lines in real time: plain, the connector and plain again, launched one after another on
the virtual GPU."""

from collections.abc import Callable

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.artifacts.receipts import read_receipt
from connector_tax.base.config import CampaignConfig
from connector_tax.base.plan import read_campaign_file
from connector_tax.check.document import RealTime
from connector_tax.read.analysis import analyse
from connector_tax.read.figures.words import problem_text
from connector_tax.read.stats.taxes import LATENCY_METRICS
from connector_tax.run.measure.preflight import run_preflight
from connector_tax.run.measure.run import measure_run


def measure_real_time(
    folder: CampaignFolder, config: CampaignConfig, own_id: str, say: Callable[[str], None]
) -> RealTime:
    """Measure all three and analyse what was measured.

    Raises:
        EngineError: plain vLLM cannot be measured.
    """
    run_preflight(folder.campaign_file, launch="none")
    date = read_campaign_file(folder.campaign_file).date
    for connector in config.connectors:
        say(f"real time: {connector.label}")
        deaths = measure_run(folder.campaign_file, connector.id, "a")
        receipt = read_receipt(folder.run(date, connector.id, "a"))
        if connector.id == own_id and (deaths or receipt.status != "measured"):
            return RealTime((), (), deaths[0].cause if deaths else receipt.reason)
    found = analyse(folder.root)
    taxes = {(t.config, t.metric): t for t in found.main_taxes if t.metric in LATENCY_METRICS}
    lost = (f"{c.config}: {'; '.join(map(problem_text, c.reasons))}" for c in found.cells if not c.usable)
    return RealTime(tuple(taxes.values()), tuple(lost), None)
