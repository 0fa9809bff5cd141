"""An engine that dies while it answers the fixed prompts: another launch is asked, and one that always does ends the pass."""

import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
from host_faults import DATE, small_campaign

from connector_tax.base.documents.cell import OutputsFile
from connector_tax.base.files import read_document
from connector_tax.run.measure import run as run_module
from connector_tax.run.measure.run import measure_run


@pytest.mark.parametrize(("kills", "answered", "late_s"), [(1, True, 0.0), (2, False, 0.0), (1, True, 2.5)])
def test_an_engine_killed_in_the_accuracy_pass_is_asked_again_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kills: int,
    answered: bool,
    late_s: float,
) -> None:
    """
    Args:
        late_s: by how much later its supervisor says so: it first ends what is left of an engine, such as the core whose API server was killed.
    """
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))
    killed, finished = [], set[int]()
    collect = run_module.collect_outputs

    def after_a_kill(*given: Any, **named: Any) -> Any:
        (cell,) = run.finished_cells()
        finished.add(cell.cell_json.stat().st_ino)
        if len(killed) < kills:
            engine = next(
                p
                for p in psutil.Process().children(recursive=True)
                if "emulator" in " ".join(p.cmdline()[:4])
            )
            supervisor = engine.parent()
            assert supervisor is not None and "connector_tax.run.engine.supervisor" in supervisor.cmdline()
            if late_s:
                supervisor.suspend()
                threading.Timer(late_s, supervisor.resume).start()
            engine.kill()
            killed.append(engine)
        return collect(*given, **named)

    monkeypatch.setattr(run_module, "collect_outputs", after_a_kill)
    folder = small_campaign(tmp_path)
    run = folder.run(DATE, "noop_connector", "a")
    measure_run(folder.campaign_file, "noop_connector", "a")
    assert "the engine died in the accuracy pass, another launch is asked" in capsys.readouterr().err
    (cell,) = run.finished_cells()
    assert finished == {cell.cell_json.stat().st_ino}, "its cell was measured again"
    (output,) = read_document(run.outputs, OutputsFile).outputs
    assert ("token_ids" in output) is answered
    assert len(list(run.path.glob("attempt_*"))) == 1
