"""Connectors that copy between device and host serve on the virtual GPU, their stores are hit, and copies take the time of their true bytes.

One process makes all the launches, one after the other (plugins/copying_connectors.py).
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from test_check import SHAPE
from test_hook_order import PLUGINS, virtual_gpu

pytestmark = pytest.mark.vllm
SCRIPT = Path(__file__).parent / "plugins" / "copying_connectors.py"
LINK_BYTES_PER_S = 10_000_000
# Four layers of keys and values, four heads of 128 numbers of two bytes.
TOKEN_BYTES = 4 * 2 * 4 * 128 * 2
PROMPT_S = 512 * TOKEN_BYTES / LINK_BYTES_PER_S
STEP_S = 0.002
LMCACHE = "LMCacheConnectorV1"
CONNECTORS = ("ExampleConnector", "OffloadingConnector", "SimpleCPUOffloadConnector", LMCACHE)
# All but what the connector wants computed.
FROM_STORE = {
    "ExampleConnector": 496,
    "OffloadingConnector": 512,
    "SimpleCPUOffloadConnector": 496,
    LMCACHE: 511,
}
# All of the prompt's whole blocks; Example leaves the last one out.
STORED = {**dict.fromkeys(CONNECTORS, 512), "ExampleConnector": 496}
# LMCache copies whole chunks, of which one token is computed again.
COPIED_AGAIN = {**FROM_STORE, LMCACHE: 512}


@pytest.fixture(scope="module")
def copies(engine_python: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("copies")
    (folder / "store").mkdir()
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(SHAPE))
    document = virtual_gpu(folder)
    document.write_text(
        json.dumps({**json.loads(document.read_text()), "host_link_bytes_per_s": LINK_BYTES_PER_S})
    )
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "LMCACHE_TRACK_USAGE": "false",
        "CONNECTOR_TAX_VIRTUAL_GPU": str(document),
        "PYTHONPATH": os.pathsep.join(map(str, (PLUGINS, PLUGINS / "virtual_gpu" / "entry"))),
    }
    found = _ran(engine_python, folder, environment)
    refused = _ran(engine_python, folder, environment, "refused")
    return {**found, "refused_settings": refused}


def _ran(engine_python: str, folder: Path, environment: dict[str, str], *mode: str) -> dict[str, Any]:
    done = subprocess.run(
        [engine_python, str(SCRIPT), str(folder / "model"), str(folder / "store"), *mode],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("COPIES ")]
    assert done.returncode == 0 and lines, done.stdout[-2000:] + done.stderr[-6000:]
    found: dict[str, Any] = json.loads(lines[-1].removeprefix("COPIES "))
    return {**found, "log": done.stderr}


def of(copies: dict[str, Any], connector: str) -> dict[str, Any]:
    if connector == LMCACHE and LMCACHE not in copies:
        pytest.skip("the engine's environment has no LMCache; scripts/make_engine_env.sh says why")
    found: dict[str, Any] = copies[connector]
    return found


@pytest.mark.parametrize("connector", CONNECTORS)
def test_a_prompt_comes_from_the_store_once_it_was_there(copies: dict[str, Any], connector: str) -> None:
    found = of(copies, connector)
    assert (found["first_loaded"], found["again_loaded"]) == (0, FROM_STORE[connector])
    assert f"connector-tax: virtual GPU: stand-in for {connector}: " in copies["log"]


@pytest.mark.parametrize(
    ("connector", "storing", "tokens"),
    [(LMCACHE, "wait_for_save", 512), ("ExampleConnector", "save_kv_layer", 496)],
)
def test_a_copy_that_the_engine_waits_for_takes_its_time_of_a_hook(
    copies: dict[str, Any], connector: str, storing: str, tokens: int
) -> None:
    """Storing waits for the step as well, whose keys and values are stored. A busy host sleeps for less: some of the time is over before it does."""
    found = of(copies, connector)
    copy_s = PROMPT_S * tokens / 512
    assert 0.3 * copy_s < found["first_waited_s"][storing] <= copy_s + STEP_S
    assert 0.3 * copy_s < found["again_waited_s"]["start_load_kv"] <= copy_s + STEP_S
    assert storing not in found["again_waited_s"]


@pytest.mark.parametrize("connector", CONNECTORS)
def test_what_is_stored_and_loaded_is_clocked_by_its_true_bytes(
    copies: dict[str, Any], connector: str
) -> None:
    found = of(copies, connector)
    assert found["first_copied_bytes"] == STORED[connector] * TOKEN_BYTES
    assert found["again_copied_bytes"] == COPIED_AGAIN[connector] * TOKEN_BYTES


def test_a_way_of_copying_that_has_no_stand_in_is_refused_by_name(copies: dict[str, Any]) -> None:
    found = copies["refused_settings"]
    assert "kv_offload_backend 'disk'" in found["SimpleCPUOffloadConnector"]
    if LMCACHE in copies:
        assert "cannot run LMCache with use_layerwise" in found[LMCACHE]


@pytest.mark.parametrize("connector", ("OffloadingConnector", "SimpleCPUOffloadConnector"))
def test_a_copy_beside_the_steps_holds_nobody_up(copies: dict[str, Any], connector: str) -> None:
    found = of(copies, connector)
    assert (found["first_waited_s"], found["again_waited_s"]) == ({}, {})


@pytest.mark.parametrize("connector", CONNECTORS)
def test_over_a_link_that_takes_no_time_nothing_but_the_step_is_waited_for(
    copies: dict[str, Any], connector: str
) -> None:
    found = of(copies, connector)["at_once"]
    assert found["again_loaded"] == FROM_STORE[connector]
    assert all(
        waited <= STEP_S for which in ("first", "again") for waited in found[f"{which}_waited_s"].values()
    )


def test_stores_have_as_many_blocks_as_their_size_holds_of_true_ones(copies: dict[str, Any]) -> None:
    """64 MiB on the device and 8 MiB on the host, of blocks of 16 tokens."""
    for connector in CONNECTORS[1:3]:
        found = of(copies, connector)
        assert found["device_blocks"] == (64 << 20) // (16 * TOKEN_BYTES) == 512
        assert found["host_blocks"] == (8 << 20) // (16 * TOKEN_BYTES) == 64


def test_without_a_link_a_connector_that_copies_is_refused(copies: dict[str, Any]) -> None:
    assert "cannot run OffloadingConnector" in copies["refusal"]
    assert "host_link_bytes_per_s is not given" in copies["refusal"]
