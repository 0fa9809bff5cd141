"""The connectors of the campaigns on a virtual GPU: what copies has a stand-in, is in docs and installed, and every one has its look."""

import re
from pathlib import Path

import pytest

from connector_tax.base.config import load_campaign
from connector_tax.read.stats.injected import known_delays_us

ROOT = Path(__file__).parents[2]
VIRTUAL = ("virtual-gpu", "virtual-gpu-sync")
PUT_IN = "virtual-gpu-put-in"
# Read and not imported: it needs torch.
STAND_INS = (ROOT / "launch" / "plugins" / "virtual_gpu" / "stand_ins" / "__init__.py").read_text()
COPYING = set(re.findall(r'^    "(\w+)": \w+\.put_in,$', STAND_INS, re.MULTILINE))


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ENGINE_PYTHON", "/bin/true")
    monkeypatch.setenv("MODEL_FOLDER", str(tmp_path))


@pytest.mark.parametrize("name", VIRTUAL)
def test_what_copies_kv_there_has_a_stand_in(name: str) -> None:
    """Of another one the engine would die, or serve on the CPU's terms."""
    assert len(COPYING) == 4
    connectors = load_campaign(ROOT / "config" / f"{name}.yaml").connectors
    copying = [c for c in connectors if c.copies_kv is not None]
    assert {"lmcache_only", "offloading", "example_connector"} <= {c.id for c in copying}
    for connector in copying:
        assert connector.kv_transfer_config is not None
        assert connector.kv_transfer_config["kv_connector"] in COPYING, connector.id


def test_the_burns_of_the_test_connectors_are_known() -> None:
    """By the analysis; those of the other campaigns are not."""
    config = load_campaign(ROOT / "config" / f"{PUT_IN}.yaml")
    assert known_delays_us(config) == {
        "burning_0": 0.0,
        "burning_200": 200.0,
        "burning_1000": 1000.0,
    }
    assert config.engine.args["async_scheduling"] is False
    for name in VIRTUAL:
        config = load_campaign(ROOT / "config" / f"{name}.yaml")
        assert known_delays_us(config) == {}


def test_the_engines_environment_has_the_lmcache_that_the_stand_in_knows() -> None:
    script = (ROOT / "scripts" / "make_engine_env.sh").read_text()
    (version,) = set(re.findall(r"lmcache==([\d.]+)", script))
    assert f"LMCache {version}" in (ROOT / "docs" / "virtual-gpu.md").read_text()
    assert f".lmcache-{version}" in script
