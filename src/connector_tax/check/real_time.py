"""A campaign of three lines in real time: plain, the connector and plain again, launched one after another on the virtual GPU."""

from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from connector_tax.base.artifacts.receipts import read_receipt
from connector_tax.base.plan import read_campaign_file
from connector_tax.check.campaign import AGAIN, write_campaign
from connector_tax.check.document import RealTime
from connector_tax.check.request import CheckRequest
from connector_tax.read.analysis import analyse
from connector_tax.read.stats.taxes import LATENCY_METRICS
from connector_tax.run.measure.preflight import run_preflight
from connector_tax.run.measure.run import measure_run

NAME = "real-time"
DURATION_S = 15.0
Say = Callable[[str], None]


def measure_real_time(request: CheckRequest, root: Path, log: Path, say: Say) -> RealTime:
    """Measure all three and analyse what was measured.

    Args:
        log: what the pipeline says goes there.

    Raises:
        ConfigError: the request cannot be measured.
        EngineError: plain vLLM cannot be measured.
    """
    config, folder = write_campaign(request, root, NAME, duration_s=DURATION_S)
    date = read_campaign_file(folder.campaign_file).date
    with (
        open(log, "a", encoding="utf-8", errors="backslashreplace") as out,
        redirect_stdout(out),
        redirect_stderr(out),
    ):
        run_preflight(folder.campaign_file, launch="none")
        for connector_id in ("plain", request.connector_id, AGAIN):
            say(f"real time: {config.connector(connector_id).label}")
            deaths = measure_run(folder.campaign_file, connector_id, "a")
            receipt = read_receipt(folder.run(date, connector_id, "a"))
            if connector_id == request.connector_id and (deaths or receipt.status != "measured"):
                return RealTime((), (), deaths[0].cause if deaths else receipt.reason)
        found = analyse(folder.root).aggregate
    taxes = {(t.config, t.metric): t for t in found.main_taxes if t.metric in LATENCY_METRICS}
    lost = (f"{c.config}: {'; '.join(c.reasons)}" for c in found.cells if not c.usable)
    return RealTime(tuple(taxes.values()), tuple(lost), None)
