"""A sitting on a host that is lent: plain first, the end of an engine kept as long as it takes here, and nobody outlives its minutes."""

import time
from pathlib import Path
from typing import Any

import pytest
from builders import DATE, campaign_config
from msgspec.structs import replace

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import CampaignConfig
from connector_tax.base.errors import EngineError
from connector_tax.base.files import write_json, write_text
from connector_tax.base.plan import run_order
from connector_tax.base.plan.duration import RELEASE_S
from connector_tax.run.measure import sitting
from connector_tax.run.measure.sitting import Sitting, Stage, ending_s, sit, stages


@pytest.fixture
def config() -> CampaignConfig:
    found = campaign_config(repeats=3)
    return replace(found, engine=replace(found.engine, stop_grace_s=5.0))


def sits(config: CampaignConfig, folder: CampaignFolder, within_s: float, **given: Any) -> Sitting:
    given = {"launch_s": 10.0, "launch": "all", "say": lambda what: None, **given}
    return sit(config, folder, DATE, within_s=within_s, **given)


def test_plain_is_first_in_each_phase_and_the_others_are_as_drawn(
    config: CampaignConfig, tmp_path: Path
) -> None:
    """A short sitting held no plain, and so no tax."""
    measured: dict[str, list[str]] = {}
    for stage in stages(config, CampaignFolder(tmp_path), DATE):
        if stage.run is not None:
            measured.setdefault(stage.run.phase, []).append(stage.run.connector_id)
    assert set(measured) == set(config.phases) >= {"a", "b", "r1", "r3"}
    assert any(run_order(config, phase)[0] != "plain" for phase in measured)
    for phase, order in measured.items():
        assert order[0] == "plain"
        assert order[1:] == [c for c in run_order(config, phase) if c != "plain"]


def test_what_is_kept_for_an_engines_end_is_what_it_took_here(
    config: CampaignConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """45 s of each sitting were kept on a GPU, where an end takes 8."""
    config = replace(config, engine=replace(config.engine, kind="vllm"))
    folder = CampaignFolder(tmp_path)
    kept: list[tuple[float, float]] = []
    begun_s = 0.0

    def finished(stage: Stage, until_s: float, end_s: float, launch_s: float) -> bool:
        kept.append((begun_s + 100 - until_s, begun_s + 100 - end_s))
        write_text(stage.product, "")
        return True

    monkeypatch.setattr(sitting, "_finished", finished)
    assert ending_s(config, folder) == RELEASE_S["vllm"]
    for ends in ([], [{"ending_s": 7.5}, {"ending_s": 8.0}, {}]):
        launches = [{"attempt": k, "elapsed_s": 60.0, **end} for k, end in enumerate(ends, 1)]
        write_json(folder.run(DATE, "plain", "a").launches, {"launches": launches})
        kept.clear()
        begun_s = time.monotonic()
        sits(config, folder, 100.0)
        for stage in stages(config, folder, DATE):
            stage.product.unlink()
        cells_s, end_s = kept[0]
        # The grace of who is told to end, and a little, whatever was measured.
        assert end_s == pytest.approx(8.0, abs=2.0)
        assert cells_s == pytest.approx(end_s + (8.0 if ends else RELEASE_S["vllm"]), abs=1e-6)
    with pytest.raises(EngineError, match=r"a launch takes 10 s here and 16 s are kept for its end"):
        sits(config, folder, 20.0)


def test_a_stage_that_takes_all_of_its_grace_ends_within_the_minutes(
    config: CampaignConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(config, engine=replace(config.engine, stop_grace_s=1.0))
    monkeypatch.setattr(sitting, "SCRIPTS", tmp_path)
    (tmp_path / "preflight.py").write_text(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *given: (time.sleep(1.0), sys.exit(143)))\n"
        f"open({str(tmp_path / 'given')!r}, 'w').write(' '.join(sys.argv[1:]))\n"
        "time.sleep(60)\n"
    )
    begun_s = time.monotonic()
    with pytest.raises(EngineError, match="nothing of it was finished"):
        sits(config, CampaignFolder(tmp_path / "demo"), 6.0, launch_s=0.5, launch="plain")
    assert time.monotonic() - begun_s < 6.0
    assert "--launch plain" in (tmp_path / "given").read_text()
