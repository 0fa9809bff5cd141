"""A measurement that is killed while its engine ends has nothing left to launch for, and its log is gone through all the same."""

from pathlib import Path

import pytest
from host_faults import DATE, small_campaign

from connector_tax.base.files import read_json, write_json
from connector_tax.run.measure.run import measure_run

SECRET = "planted-key-of-a-killed-end"


def test_what_an_engine_printed_before_its_launch_was_killed_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PLANTED", SECRET)
    folder = small_campaign(tmp_path)
    document = read_json(folder.campaign_file)
    document["config"]["engine"]["args"]["api_key"] = "${PLANTED}"
    write_json(folder.campaign_file, document)
    measure_run(folder.campaign_file, "noop_connector", "a")
    run = folder.run(DATE, "noop_connector", "a")
    log = run.path / "vllm_stderr.log"
    launched = run.launch_sh.stat().st_mtime_ns
    log.write_text(f"non-default args: {{'api_key': ['{SECRET}']}}\n")
    run.receipt.unlink()
    measure_run(folder.campaign_file, "noop_connector", "a")
    assert run.receipt.is_file() and run.launch_sh.stat().st_mtime_ns == launched
    assert log.is_file() and SECRET not in log.read_text()
