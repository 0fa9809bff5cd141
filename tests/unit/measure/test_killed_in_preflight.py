"""An engine that is killed while preflight tries it: once is an accident, twice is a reason."""

from pathlib import Path

import pytest
from host_faults import small_campaign

from connector_tax.base.documents.receipt import PreflightStatus
from connector_tax.base.files import read_document
from connector_tax.run.engine.process import RunningEngine
from connector_tax.run.measure.preflight import run_preflight


@pytest.mark.parametrize(("kills", "decision"), [(1, "include"), (2, "skip")])
def test_an_engine_killed_in_preflight_is_tried_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int, decision: str
) -> None:
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))
    folder = small_campaign(tmp_path, connectors=("plain", "noop_connector"))
    folder.preflight_status.unlink()
    wait, killed = RunningEngine.wait_ready, []

    def killed_first(engine: RunningEngine) -> None:
        if engine.request.connector.id == "noop_connector" and len(killed) < kills:
            killed.append(engine)
            engine.supervisor.kill()
        wait(engine)

    monkeypatch.setattr(RunningEngine, "wait_ready", killed_first)
    run_preflight(folder.campaign_file)
    found = read_document(folder.preflight_status, PreflightStatus).configs["noop_connector"]
    assert found.decision == decision
    assert found.reason is None or found.reason.startswith(
        "ready: noop_connector: the engine died while starting: killed by SIGKILL"
    )
