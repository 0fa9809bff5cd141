"""An engine killed beside a cell: the measuring job learns it as a death, never as an unreadable page."""

import signal
from pathlib import Path

import psutil
import pytest
from builders import ABOUT

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import load_campaign
from connector_tax.base.documents.cell import IdleUse
from connector_tax.base.plan import cells_of
from connector_tax.run.engine.process import LaunchRequest, running_engine
from connector_tax.run.loadgen.coordinator import worker_pool
from connector_tax.run.measure.cell import Bench, measure_one_cell

CONFIG = Path(__file__).parents[3] / "config"


@pytest.mark.parametrize("last_try", [False, True])
def test_an_engine_killed_between_two_cells_is_a_death(tmp_path: Path, last_try: bool) -> None:
    """Its port is closed before its supervisor is gone; in between, ``/metrics`` answers nobody."""
    campaign = load_campaign(CONFIG / "demo.yaml")
    run = CampaignFolder(tmp_path).run("2026-01-01", "plain", "a")
    cell = cells_of(campaign, "plain", "a")[0]
    request = LaunchRequest(campaign.engine, campaign.connector("plain"), run.path)
    with worker_pool(1) as pool, running_engine(request) as engine:
        engine.wait_ready()
        for process in psutil.Process(engine.supervisor.pid).children(recursive=True):
            process.send_signal(signal.SIGKILL)
        death = measure_one_cell(
            cell,
            run.cell(cell.cell_id),
            Bench(
                engine=engine,
                pool=pool,
                raw_metrics=run.raw_metrics,
                step_log=None,
                about=ABOUT,
                idle=IdleUse(),
            ),
            last_try=last_try,
        )
    assert death == "killed by SIGKILL; the log gives no reason"
    assert run.cell(cell.cell_id).path.exists() == last_try
