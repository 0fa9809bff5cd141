"""A model that is not on the host is fetched, and said, before anything is timed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from builders import campaign_config
from families import alive, within
from msgspec.structs import replace

from connector_tax.base.config import EngineConfig
from connector_tax.base.errors import ConfigError, EngineError
from connector_tax.run.engine.command import (
    fetch_model,
    hub_cache,
    missing_from_host,
    model_folder,
    weights_bytes,
)

# In place of the hub's library: writes a snapshot where the real one would, and what it was asked for.
HUB = """
import json, os, pathlib
def snapshot_download(model, allow_patterns, revision, cache_dir):
    home = pathlib.Path(cache_dir or os.environ["HF_HUB_CACHE"]) / ("models--" + model.replace("/", "--"))
    if "gone" in model:
        raise OSError("404: no such repository")
    if "gated" in model and os.environ.get("HF_TOKEN") != "of the user":
        raise OSError("401: gated")
    folder = home / "snapshots" / "abc"
    folder.mkdir(parents=True, exist_ok=True)
    (home / "refs").mkdir(exist_ok=True)
    (home / "refs" / (revision or "main")).write_text("abc")
    (folder / "config.json").write_text("{}")
    if "*.safetensors" in allow_patterns and "torch" not in model:
        (folder / "model.safetensors").write_text("12345")
    if "*.bin" in allow_patterns:
        (folder / "pytorch_model.bin").write_text("123")
    return str(folder)
"""


@pytest.fixture
def engine(tmp_path: Path) -> EngineConfig:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "huggingface_hub.py").write_text(HUB)
    env = {
        "HF_HUB_CACHE": str(tmp_path / "hub"),
        "PYTHONPATH": str(tmp_path / "lib"),
        "HF_HUB_OFFLINE": "0",
        "TRANSFORMERS_OFFLINE": "0",
    }
    return replace(campaign_config("config.yaml").engine, python=sys.executable, model="org/model", env=env)


def test_a_model_that_is_not_here_is_named_with_where_it_was_looked_for(
    engine: EngineConfig, tmp_path: Path
) -> None:
    told = missing_from_host(engine)
    assert told == f"model org/model is not on this host: no snapshot of it in {tmp_path / 'hub'}"
    fetch_model(engine)
    assert missing_from_host(engine) is None
    folder = model_folder(engine)
    assert folder is not None and weights_bytes(folder) == 5


def test_a_token_that_the_config_refers_to_reaches_the_download(
    engine: EngineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/secrets.md: write ``${HF_TOKEN}``, and export it."""
    gated = replace(engine, model="org/gated", env={**engine.env, "HF_TOKEN": "${HF_TOKEN}"})
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with pytest.raises(
        ConfigError, match=r"engine.env.HF_TOKEN: \$\{HF_TOKEN\}: that environment variable is not set"
    ):
        fetch_model(gated)
    monkeypatch.setenv("HF_TOKEN", "of the user")
    fetch_model(gated)
    assert missing_from_host(gated) is None


def test_a_repository_without_safetensors_gives_its_other_weights(engine: EngineConfig) -> None:
    torch = replace(engine, model="org/torch")
    fetch_model(torch)
    assert missing_from_host(torch) is None
    assert weights_bytes(model_folder(torch) or Path()) == 3


def test_a_download_that_broke_off_is_not_a_model(engine: EngineConfig) -> None:
    dummy = replace(engine, args={**engine.args, "load_format": "dummy"})
    fetch_model(dummy)
    assert missing_from_host(dummy) is None  # random weights need no files
    assert "lacks weights" in str(missing_from_host(engine))
    folder = model_folder(engine)
    assert folder is not None
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model-1.safetensors").write_text("1")
    assert "lacks weights" in str(missing_from_host(engine))
    (folder / "model-2.safetensors").write_text("22")
    assert missing_from_host(engine) is None and weights_bytes(folder) == 3


def test_another_revision_and_another_folder_are_looked_for_there(
    engine: EngineConfig, tmp_path: Path
) -> None:
    args = {**engine.args, "revision": "v2", "download_dir": str(tmp_path / "elsewhere")}
    own = replace(engine, args=args)
    fetch_model(engine)
    assert missing_from_host(own) is not None
    fetch_model(own)
    assert missing_from_host(own) is None
    assert model_folder(own) == tmp_path / "elsewhere" / "models--org--model" / "snapshots" / "abc"


def test_what_cannot_be_had_is_one_message(engine: EngineConfig) -> None:
    with pytest.raises(EngineError, match=r"model org/gone could not be downloaded.*bring it to"):
        fetch_model(replace(engine, model="org/gone"))
    offline = replace(engine, env={**engine.env, "HF_HUB_OFFLINE": "1"})
    with pytest.raises(
        EngineError, match=r"no snapshot of it in .*, and HF_HUB_OFFLINE is set\. Bring it there"
    ):
        fetch_model(offline)


def test_what_is_no_hubs_affair_is_left_alone(engine: EngineConfig, tmp_path: Path) -> None:
    assert missing_from_host(campaign_config("demo.yaml").engine) is None
    assert missing_from_host(replace(engine, model=str(tmp_path))) is None
    assert missing_from_host(replace(engine, model="s3://bucket/model")) is None
    assert missing_from_host(replace(engine, env={**engine.env, "VLLM_USE_MODELSCOPE": "True"})) is None


def test_the_cache_is_where_the_hubs_library_has_it(
    engine: EngineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    bare = replace(engine, env={})
    assert hub_cache(bare) == Path.home() / ".cache" / "huggingface" / "hub"
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert hub_cache(bare) == Path("/x/huggingface/hub")
    monkeypatch.setenv("HF_HOME", "/y")
    assert hub_cache(bare) == Path("/y/hub")


FETCHING = """
import json, sys
sys.path.insert(0, sys.argv[1])
from msgspec.structs import replace
from builders import campaign_config
from connector_tax.run.engine.command import fetch_model
fetch_model(replace(campaign_config("config.yaml").engine, python=sys.argv[2], model="org/model"))
"""


def test_no_download_survives_a_killed_preflight(tmp_path: Path) -> None:
    """It would go on for as long as the model is large, and lock the hub's cache meanwhile."""
    python = tmp_path / "python"
    python.write_text(
        f"#!/bin/sh\necho $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec sleep 600\n"
    )
    python.chmod(0o755)
    command = [sys.executable, "-c", FETCHING, str(Path(__file__).parents[2]), str(python)]
    offline = {"HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "0"}
    with subprocess.Popen(command, env={**os.environ, **offline}) as preflighting:
        assert within(20, lambda: (tmp_path / "pid").exists())
        preflighting.kill()
    download = int((tmp_path / "pid").read_text())
    assert within(20, lambda: not alive(download))
