"""A connector that keeps KV on disk finds nothing in a launch of what the launch before it kept."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from connector_tax.base.config import load_campaign
from connector_tax.run.engine.process import LaunchRequest, running_engine
from connector_tax.run.engine.store import stores_folder
from connector_tax.run.sampler.sampler import scrape_once

pytestmark = pytest.mark.vllm
ROOT = Path(__file__).parents[2]
PROMPT = [10 + k % 400 for k in range(600)]


@pytest.fixture
def own_tmp(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Short: vLLM's sockets lie there as well, and their paths have no more than 107 characters."""
    with tempfile.TemporaryDirectory() as short:
        monkeypatch.setenv("TMPDIR", short)
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield


@pytest.mark.usefixtures("own_tmp")
def test_two_launches_of_a_connector_on_disk_share_nothing(
    engine_python: str, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same prompt in both: the first launch writes its KV to disk, and the second is asked for it and has none."""
    monkeypatch.setenv("ENGINE_PYTHON", engine_python)
    monkeypatch.setenv("TINY_MODEL", str(tiny_model))
    config = load_campaign(ROOT / "config" / "vllm-cpu.yaml")
    hits = []
    for launch in ("first", "second"):
        request = LaunchRequest(config.engine, config.connector("multi_noop_example"), tmp_path / launch)
        with running_engine(request) as engine:
            engine.wait_ready()
            body = {"model": engine.model, "prompt": PROMPT, "max_tokens": 4, "temperature": 0}
            httpx.post(f"{engine.base_url}/v1/completions", json=body, timeout=120).raise_for_status()
            assert list((stores_folder() / "0").iterdir()), "the connector wrote nothing to its store"
            counted = scrape_once(engine.base_url)
            assert counted["external_prefix_cache_queries"] > 0
            hits.append(counted["external_prefix_cache_hits"])
        assert not (stores_folder() / "0").exists()
    assert hits == [0, 0]
