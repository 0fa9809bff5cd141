"""A launch on a virtual GPU: its document, its environment, its script, and what of a real GPU is left alone."""

import json
import time
from pathlib import Path

import pytest
from launches import by_hand, launch_of
from msgspec.structs import asdict, replace
from virtual_gpus import LLAMA, clocked_campaign, model_in

from connector_tax.base.artifacts.layout import DEVICE_CLOCK, VIRTUAL_GPU
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.errors import ConfigError
from connector_tax.base.files import to_json
from connector_tax.run.engine.command import check_model, engine_environment, engine_python, missing_from_host
from connector_tax.run.engine.gpu_host import too_large
from connector_tax.run.engine.gpus import cards_of
from connector_tax.run.engine.launch import instrument
from connector_tax.run.engine.process import LaunchRequest, running_engine
from connector_tax.run.engine.virtual_gpu import VARIABLE, gpu_document, gpu_identity, remove_copy, write_gpu

STEP = {"base_us": 4000, "per_prefill_token_us": 15, "per_decode_seq_us": 20, "per_context_token_us": 0.02}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return model_in(tmp_path / "model")


def test_the_document_is_what_the_plugin_reads(model: Path) -> None:
    document = gpu_document(clocked_campaign(model).engine)
    assert document is not None
    written = json.loads(to_json(document))
    assert set(written) == {
        *("schema", "name", "compute_capability", "memory_bytes", "kv_cache_bytes", "step", "host"),
        "host_link_bytes_per_s",
    }
    assert document.host_link_bytes_per_s == 53_000_000_000
    assert (written["schema"], written["compute_capability"]) == (1, [9, 0])
    assert document.step.base_us == pytest.approx(7924.6, abs=0.1)
    assert document.kv_cache_bytes == pytest.approx(71.4e9, rel=1e-3)
    assert written["host"] == {"before_launch_us": 0, "before_launch_per_seq_us": 0, "after_launch_us": 0}


def test_given_numbers_need_no_model_that_the_roofline_knows(tmp_path: Path) -> None:
    model = model_in(tmp_path / "odd", {"architectures": ["OPTForCausalLM"]})
    given = clocked_campaign(model, {"step": STEP, "kv_cache_bytes": 10**9}).engine
    document = gpu_document(given)
    assert document is not None
    assert (asdict(document.step), document.kv_cache_bytes) == (STEP, 10**9)
    with pytest.raises(ConfigError, match="architecture OPTForCausalLM"):
        gpu_document(clocked_campaign(model, {"step": STEP}).engine)


def test_a_cache_of_one_byte_is_read_in_half_the_time(model: Path) -> None:
    whole, half = (
        gpu_document(clocked_campaign(model, args={"kv_cache_dtype": dtype}).engine)
        for dtype in ("auto", "fp8")
    )
    assert whole is not None and half is not None
    assert half.step.per_context_token_us == pytest.approx(whole.step.per_context_token_us / 2)
    assert half.step.base_us == whole.step.base_us


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"tensor_parallel_size": 2}, "multiply to 2, and a virtual GPU is one"),
        ({"dtype": "float32"}, "engine.args.dtype: float32: the roofline is of weights of two bytes"),
        ({"kv_cache_dtype": "int8_per_token_head"}, "engine.args.kv_cache_dtype: int8_per_token_head"),
        ({"kv_cache_memory_bytes": 1 << 30}, "engine.args.kv_cache_memory_bytes: 1073741824"),
        ({"gpu_memory_utilization": 0.3}, "leave nothing for the KV cache"),
    ],
)
def test_what_one_clock_cannot_be_is_refused(model: Path, args: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        gpu_document(clocked_campaign(model, args=args).engine)


def test_a_model_that_is_not_here_is_named(tmp_path: Path) -> None:
    engine = clocked_campaign(tmp_path / "nowhere").engine
    with pytest.raises(ConfigError, match=r"its config\.json is not on this host"):
        gpu_document(engine)
    with pytest.raises(ConfigError, match=r"no model directory there \(no config.json in it\)"):
        check_model(engine)


def test_the_folder_keeps_a_document_that_can_be_passed_on(model: Path, tmp_path: Path) -> None:
    """The engine's copy has the whole path, is no older launch's, and goes with the launch."""
    folder = tmp_path / "run"
    (folder / "steps").mkdir(parents=True)
    (folder / DEVICE_CLOCK).write_text("an earlier launch\n")
    copy = write_gpu(clocked_campaign(model).engine, folder)
    assert copy is not None
    assert json.loads(copy.read_text())["clock_log"] == str(folder / "steps" / "device_clock.jsonl")
    kept = json.loads((folder / VIRTUAL_GPU).read_text())
    assert kept["clock_log"] == "steps/device_clock.jsonl"
    assert str(tmp_path) not in (folder / VIRTUAL_GPU).read_text()
    assert not (folder / DEVICE_CLOCK).exists()
    remove_copy(folder)
    assert not copy.exists() and (folder / VIRTUAL_GPU).exists()


def test_no_card_is_looked_up_or_shown(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never() -> None:
        raise AssertionError("NVML was asked")

    monkeypatch.setattr("connector_tax.run.engine.gpus.host_gpus", never)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    engine = replace(clocked_campaign(model).engine, gpu=2)
    cards = cards_of(engine)
    assert (cards.gpus, cards.slot, cards.sampled, cards.side_port_slot) == ((), 2, None, 2)
    assert too_large(engine, cards, 10**9) is None
    environment = engine_environment(engine, clocked_campaign(model).connector("mooncake_both"), cards)
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert environment["VLLM_MOONCAKE_BOOTSTRAP_PORT"] == "9198"  # its default, moved on by two cards
    assert engine_python(engine) == "/bin/true"


def test_no_weights_are_asked_for(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_from_host(clocked_campaign(model).engine) is None
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    snapshot = tmp_path / "hub" / "models--a--b" / "snapshots" / "main"
    model_in(snapshot, LLAMA)
    clocked = clocked_campaign("a/b").engine
    assert missing_from_host(clocked) is None
    assert "lacks weights" in str(missing_from_host(replace(clocked, kind="vllm", virtual_gpu=None)))


def test_the_gpus_document_is_part_of_what_was_measured(model: Path, tmp_path: Path) -> None:
    h200, h100 = (gpu_identity(clocked_campaign(model, {"gpu": g}).engine) for g in ("h200", "h100"))
    assert h200 is not None and h100 is not None
    assert (h200.profile, h200.name) == ("h200", "NVIDIA H200")
    assert h200.sha256 != h100.sha256
    other = gpu_identity(clocked_campaign(model_in(tmp_path / "llama", LLAMA)).engine)
    assert other is not None and other.sha256 != h200.sha256
    assert gpu_identity(replace(clocked_campaign(model).engine, kind="vllm", virtual_gpu=None)) is None


def stand_in(folder: Path) -> Path:
    """An engine's interpreter that writes down what it was started with, and waits."""
    path = folder / "python"
    path.write_text(
        '#!/bin/sh\ncase "$*" in\n*vllm_serve*)\n'
        f'  env > {folder}/environment; cp "$CONNECTOR_TAX_VIRTUAL_GPU" {folder}/document; sleep 60 ;;\nesac\n'
    )
    path.chmod(0o755)
    return path


def test_a_launch_hands_the_document_over(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the folder of the entry points in front, and nothing that the shell around us has set."""
    monkeypatch.setenv(VARIABLE, "/of/somebody/else.json")
    config = clocked_campaign(model, python=str(stand_in(tmp_path)))
    run = tmp_path / "run"
    with running_engine(LaunchRequest(config.engine, config.connector("plain"), run)) as engine:
        while not (tmp_path / "document").exists() and engine.supervisor.poll() is None:
            time.sleep(0.02)
    environment = dict(
        line.split("=", 1) for line in (tmp_path / "environment").read_text().splitlines() if "=" in line
    )
    assert environment[VARIABLE] == str(run / "steps" / VIRTUAL_GPU)
    folders = environment["PYTHONPATH"].split(":")
    assert folders[0] == str(PROJECT_ROOT / "launch" / "plugins" / "virtual_gpu" / "entry")
    assert folders[1] == str(PROJECT_ROOT / "launch" / "plugins")
    assert json.loads((tmp_path / "document").read_text())["clock_log"] == str(run / DEVICE_CLOCK)
    assert not (run / "steps" / VIRTUAL_GPU).exists()
    assert str(tmp_path) not in (run / VIRTUAL_GPU).read_text()


def test_the_entry_points_are_for_virtual_gpus_alone() -> None:
    """A plugin that vLLM finds under a real GPU would replace it."""
    real = instrument({"PYTHONPATH": "/mine"})
    plugins = PROJECT_ROOT / "launch" / "plugins"
    assert real == {"PYTHONPATH": f"{plugins}:{PROJECT_ROOT}/patches:/mine"}
    virtual = instrument({VARIABLE: "x", "VLLM_PLUGINS": "mine"})
    assert virtual["PYTHONPATH"] == f"{plugins}/virtual_gpu/entry:{plugins}:{PROJECT_ROOT}/patches"
    assert (virtual["CUDA_VISIBLE_DEVICES"], virtual["VLLM_PLUGINS"]) == ("", "mine,virtual_gpu")
    assert "VLLM_PLUGINS" not in instrument({VARIABLE: "x"})


def test_the_recorded_script_brings_its_gpu_along(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any clone, without the run's folder: the same document, its clock in a new folder, and no folder of this machine."""
    own = tmp_path / "run" / "steps"
    own.mkdir(parents=True)
    document = {
        "schema": 1,
        "name": "NVIDIA $H200 `x`",
        "step": STEP,
        "clock_log": str(own / "device_clock.jsonl"),
    }
    (own / VIRTUAL_GPU).write_text(json.dumps(document, indent=2))
    monkeypatch.setenv(VARIABLE, str(own / VIRTUAL_GPU))
    config, script = clocked_campaign(model), tmp_path / "launch.sh"
    script.write_text(launch_of(config.engine, config.connector("plain")).script(config.connector("plain")))
    assert str(own) not in script.read_text()
    seen = tmp_path / "seen"
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\ncat "$CONNECTOR_TAX_VIRTUAL_GPU" > {seen}\necho "$PYTHONPATH|$CUDA_VISIBLE_DEVICES|"\n'
    )
    python.chmod(0o755)
    bare = {"ENGINE_PYTHON": str(python), "TMPDIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": "0"}
    again = by_hand(script, **bare)
    assert again.returncode == 0, again.stderr
    found = json.loads(seen.read_text())
    log = Path(found.pop("clock_log"))
    assert found == {k: v for k, v in document.items() if k != "clock_log"}
    assert log.parent.is_dir() and log.parent.parent == tmp_path and log.parent != own
    folders, visible, _ = again.stdout.strip().split("|")
    assert folders.split(":")[0].endswith("launch/plugins/virtual_gpu/entry")
    assert visible == ""
