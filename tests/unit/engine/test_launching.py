"""The embedded engine launched: what starts, what is left, what is said, and what launch.sh starts."""

import json
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from families import alive
from launches import by_hand as by_hand_to_its_end
from launches import launch_of
from msgspec.structs import replace

from connector_tax.base.config import CampaignConfig, EngineConfig, load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.documents.cell import Output
from connector_tax.base.documents.identity import EngineIdentity
from connector_tax.base.errors import ConfigError, EngineError
from connector_tax.run.engine import process
from connector_tax.run.engine.command import (
    engine_arguments,
    engine_environment,
    engine_python,
)
from connector_tax.run.engine.gpus import Cards
from connector_tax.run.engine.identity import env_text
from connector_tax.run.engine.ports import free_port
from connector_tax.run.engine.process import LaunchError, LaunchRequest, cpu_seconds, running_engine
from connector_tax.run.engine.store import stores_folder
from connector_tax.run.measure.run import _death as died_of

CONFIG = Path(__file__).parents[3] / "config"


@pytest.fixture(scope="module")
def campaign() -> CampaignConfig:
    return load_campaign(CONFIG / "demo.yaml")


def vllm_engine(campaign: CampaignConfig, **changes: object) -> EngineConfig:
    return replace(campaign.engine, kind="vllm", **changes)  # type: ignore[arg-type]


def kv_transfer_config_of(process: psutil.Process) -> dict[str, Any]:
    flag = "--kv-transfer-config="
    given = next(word for word in process.cmdline() if word.startswith(flag))
    config: dict[str, Any] = json.loads(given.removeprefix(flag))
    return config


def test_an_engine_serves_and_is_gone_afterwards(campaign: CampaignConfig, tmp_path: Path) -> None:
    request = LaunchRequest(campaign.engine, campaign.connector("nixl_both"), tmp_path)
    with running_engine(request) as engine:
        engine.wait_ready()
        family = [p.pid for p in psutil.Process(engine.supervisor.pid).children(recursive=True)]
        sockets = Path(psutil.Process(family[0]).environ()["VLLM_RPC_BASE_PATH"])
        assert sockets.is_dir()
        assert set(cpu_seconds(engine)) == {"api_server"}
        models = httpx.get(f"{engine.base_url}/v1/models").json()
        assert models["data"][0]["id"] == "embedded-engine"
    assert family and not any(map(alive, family))
    assert not sockets.exists() and not (tmp_path / "engine.pid.json").exists()


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project somewhere else, without an environment of its own."""
    root = tmp_path_factory.mktemp("elsewhere") / "a clone"
    for part in ("src", "launch", "config", "workflow"):
        shutil.copytree(PROJECT_ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
    return root


@pytest.fixture(scope="module")
def left_behind(campaign: CampaignConfig, clone: Path) -> Path:
    """``launch.sh`` of a run that has ended and whose step-log folder is gone, in ``clone``'s results."""
    run, steps = clone.parent / "run", clone.parent / "steps"
    request = LaunchRequest(campaign.engine, campaign.connector("mooncake_both"), run, step_log=steps / "log")
    with running_engine(request) as engine:
        engine.wait_ready()
    shutil.rmtree(steps)
    copy = clone / "results" / "demo" / "2026-01-31_mooncake_both" / "phase_a"
    shutil.copytree(run, copy)
    return copy / "launch.sh"


def by_hand(script: Path, **variables: str) -> "subprocess.Popen[str]":
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(script.parent), **variables}
    return subprocess.Popen(
        ["bash", str(script)],
        env=environment,
        cwd="/",
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_a_runs_script_serves_from_another_clone_after_the_run(
    campaign: CampaignConfig, left_behind: Path, clone: Path, tmp_path: Path
) -> None:
    """The clone's code, plugins and cost model; the interpreter and the port as they are given."""
    port = free_port()
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    server = by_hand(left_behind, ENGINE_PYTHON=sys.executable, PORT=str(port), TMPDIR=str(temporary))
    try:
        assert served_models(port, server) == [campaign.engine.served_model_name]
        environment = psutil.Process(server.pid).environ()
        assert environment["PYTHONPATH"].split(":")[:3] == [
            f"{clone}/launch/plugins",
            f"{clone}/patches",
            f"{clone}/src",
        ]
        assert environment["CONNECTOR_TAX_ENGINE_MODEL"].startswith(f"{clone}/config/")
        assert Path(environment["AGENTIC_STEP_LOG_PATH"]).parent.parent == temporary
        assert Path(environment["AGENTIC_STEP_LOG_PATH"]).parent.is_dir()
        config = kv_transfer_config_of(psutil.Process(server.pid))
        assert config == {"kv_connector": "MooncakeConnector", "kv_role": "kv_both"}
    finally:
        server.terminate()
        server.communicate(timeout=20)


def served_models(port: int, server: "subprocess.Popen[str]") -> list[str]:
    for _ in range(200):
        if server.poll() is not None:
            raise AssertionError(server.communicate()[1])
        with suppress(httpx.TransportError):
            return [m["id"] for m in httpx.get(f"http://127.0.0.1:{port}/v1/models").json()["data"]]
        time.sleep(0.1)
    raise AssertionError("nobody answers")


def test_a_runs_script_names_no_folder_of_the_machine_it_ran_on(left_behind: Path, clone: Path) -> None:
    text = left_behind.read_text()
    assert str(PROJECT_ROOT) not in text and str(clone.parent) not in text
    assert "CONNECTOR_TAX_CACHE" not in text and "HF_TOKEN" not in text
    assert "CONNECTOR_TAX_RUN" not in text, "a server by hand would be ended as the run's leftover"
    if Path(sys.executable).is_relative_to(PROJECT_ROOT):
        assert 'ENGINE_PYTHON=${ENGINE_PYTHON:-"$CONNECTOR_TAX_PROJECT"/.venv/bin/python' in text


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (
            {"ENGINE_PYTHON": "/nowhere/python"},
            "ENGINE_PYTHON: /nowhere/python: no such program here. Set it to an interpreter that has",
        ),
        ({"ENGINE_PYTHON": "bash", "MODEL": "/nowhere"}, "MODEL: /nowhere: no such folder here. Set it to"),
        ({"CONNECTOR_TAX_PROJECT": "/nowhere"}, "CONNECTOR_TAX_PROJECT to a clone of connector-tax"),
    ],
)
def test_what_a_machine_lacks_is_one_message(
    left_behind: Path, variables: dict[str, str], message: str
) -> None:
    server = by_hand(left_behind, **variables)
    said = server.communicate(timeout=20)[1]
    assert server.returncode == 2
    assert re.search(message, said) and len(said.splitlines()) == 1


def test_a_runs_script_outside_of_any_clone_takes_the_folder_it_is_run_in(
    left_behind: Path, clone: Path
) -> None:
    """Results shipped alone: the clone is where the person stands."""
    alone = clone.parent / "launch.sh"
    shutil.copy(left_behind, alone)
    run = subprocess.run(
        ["bash", str(alone)],
        env={"PATH": "/usr/bin:/bin", "ENGINE_PYTHON": "echo"},
        cwd=clone,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("-m connector_tax.run.emulator --model ")


def test_words_and_cores_survive_being_written(campaign: CampaignConfig, tmp_path: Path) -> None:
    """What the command is given by hand is what the launch gives; without ENGINE_CPUS on any core."""
    model = tmp_path / "a model"
    model.mkdir()
    words = ("--x", "a b", f"{PROJECT_ROOT}/c d", "two\nlines; touch HERE", "$HOME `id` '\"")
    engine = vllm_engine(campaign, python="/bin/echo", model=str(model), args={}, extra_args=words)
    connector = replace(campaign.connector("nixl_both"), kv_transfer_config={"a": "x}y", "b": "$HOME"})
    launch = launch_of(engine, connector, cpus=(0,))
    text = launch.script(connector)
    (tmp_path / "launch.sh").write_text(text)
    assert "taskset" in text and "\"$CONNECTOR_TAX_PROJECT\"'/c d'" in text
    first = subprocess.run(launch.command(), capture_output=True, text=True, check=True).stdout
    again = by_hand_to_its_end(tmp_path / "launch.sh", ENGINE_CPUS="")
    assert again.stdout == first and not list(PROJECT_ROOT.glob("HERE"))


def test_the_written_command_carries_what_matters_and_no_secret(
    campaign: CampaignConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hand one gets the same server: what shapes it is there, what opens doors is not."""
    for name, value in {
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "LD_LIBRARY_PATH": "/opt/a b",
        "HF_TOKEN": "hf_abcdefghijkl",
        "VLLM_API_KEY": "letmein",
        "LMCACHE_REMOTE_URL": "redis://user:letmein@host",
        "HOME_ALARM": "letmein",
    }.items():
        monkeypatch.setenv(name, value)
    connector = campaign.connector("nixl_both")
    text = launch_of(campaign.engine, connector).script(connector)
    assert "export HF_HUB_OFFLINE=1\n" in text
    assert "export VLLM_CPU_KVCACHE_SPACE=1\n" in text
    assert "export LD_LIBRARY_PATH=${LD_LIBRARY_PATH-'/opt/a b'}\n" in text
    assert "letmein" not in text and "hf_" not in text
    assert "# Not kept, since each was secret: HF_TOKEN, LMCACHE_REMOTE_URL, VLLM_API_KEY." in text


def test_an_engine_that_is_too_slow_is_named(campaign: CampaignConfig, tmp_path: Path) -> None:
    slow = replace(campaign.engine, ready_timeout_s=0.5)
    request = LaunchRequest(slow, campaign.connector("plain"), tmp_path, fault="slow_start:20")
    with (
        pytest.raises(LaunchError, match=r"not ready after 0\.5 s; its log ends with: "),
        running_engine(request) as engine,
    ):
        engine.wait_ready()


def test_a_port_in_use_is_named_with_its_owner(campaign: CampaignConfig, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        engine = replace(campaign.engine, port=taken.getsockname()[1])
        request = LaunchRequest(engine, campaign.connector("plain"), tmp_path)
        with pytest.raises(EngineError, match=r"engine\.port: \d+ is in use by process \d+"):
            with running_engine(request):
                raise AssertionError("must not launch")


def test_arguments_follow_the_config(campaign: CampaignConfig) -> None:
    engine = replace(
        campaign.engine,
        args={"max_model_len": 200000, "enforce_eager": True, "async_scheduling": False, "x": None},
    )
    assert engine_arguments(engine, campaign.connector("plain")) == [
        "--max-model-len",
        "200000",
        "--enforce-eager",
        "--no-async-scheduling",
    ]


def test_a_missing_interpreter_is_one_message(campaign: CampaignConfig) -> None:
    with pytest.raises(ConfigError, match="export ENGINE_PYTHON="):
        engine_python(vllm_engine(campaign, python="${ENGINE_PYTHON}"))
    with pytest.raises(ConfigError, match="no such program"):
        engine_python(vllm_engine(campaign, python="/nowhere/python"))


def test_an_interpreter_that_cannot_be_run_is_said_to_be_what_it_is(
    campaign: CampaignConfig, tmp_path: Path
) -> None:
    plain = tmp_path / "python"
    plain.write_text("#!/bin/sh\n")
    for python, fault in (
        (tmp_path, f"is a folder. Give the interpreter that has vLLM, of a venv {tmp_path}/bin/python."),
        (plain, "is there and may not be executed. Give the interpreter that has vLLM."),
    ):
        with pytest.raises(ConfigError) as refused:
            engine_python(vllm_engine(campaign, python=str(python)))
        assert str(refused.value) == f"engine.python: {python}: {fault}"
    plain.chmod(0o755)
    assert engine_python(vllm_engine(campaign, python=str(plain))) == str(plain)


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("VLLM_API_KEY", "anything", "<redacted>"),
        ("HF_ENDPOINT", "https://user:pw@host/x", "<redacted>"),
        ("CUDA_VISIBLE_DEVICES", "0", "0"),
    ],
)
def test_secrets_do_not_reach_env_txt(
    campaign: CampaignConfig, monkeypatch: pytest.MonkeyPatch, name: str, value: str, shown: str
) -> None:
    monkeypatch.setenv(name, value)
    identity = EngineIdentity(kind="emulator", versions={}, gpu=(), host={})
    text = env_text(campaign.engine, campaign.connector("plain"), identity, Cards((), 0))
    assert f"\n{name}={shown}\n" in text


def test_a_server_by_hand_has_a_store_of_its_own(campaign: CampaignConfig, tmp_path: Path) -> None:
    """The run's slot may hold what a campaign that is going on stores there by now."""
    storing = replace(
        campaign.connector("mooncake_both"),
        kv_transfer_config={
            "kv_connector": "MooncakeConnector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {"path": "${STORE}/kv", "other": "a b"},
        },
        env={"SOME_STORE": "${STORE}"},
    )
    with running_engine(LaunchRequest(campaign.engine, storing, tmp_path / "run")) as engine:
        engine.wait_ready()
    script = tmp_path / "run" / "launch.sh"
    assert str(stores_folder()) not in script.read_text()
    (tmp_path / "tmp").mkdir()
    port = free_port()
    server = by_hand(
        script, CONNECTOR_TAX_PROJECT=str(PROJECT_ROOT), PORT=str(port), TMPDIR=str(tmp_path / "tmp")
    )
    try:
        served_models(port, server)
        process = psutil.Process(server.pid)
        store = Path(process.environ()["SOME_STORE"])
        assert store.parent == tmp_path / "tmp" and store.is_dir()
        extra = kv_transfer_config_of(process)["kv_connector_extra_config"]
        assert extra == {"path": f"{store}/kv", "other": "a b"}
    finally:
        server.terminate()
        server.communicate(timeout=20)


def test_a_cost_model_that_is_edited_between_two_launches_is_one_message(
    campaign: CampaignConfig, tmp_path: Path
) -> None:
    """Its cells would be those of two engines, under one specification."""
    model = tmp_path / "costs.yaml"
    shutil.copy(PROJECT_ROOT / str(campaign.engine.model_file), model)
    engine = replace(campaign.engine, model_file=str(model))
    plain = campaign.connector("plain")
    assert engine_environment(engine, plain, Cards((), 0))["CONNECTOR_TAX_ENGINE_MODEL"] == str(model)
    for change in (lambda: model.write_text(model.read_text() + "#"), model.unlink):
        change()
        with pytest.raises(ConfigError, match=r"costs\.yaml: edited since the campaign was started, or gone"):
            engine_environment(engine, plain, Cards((), 0))


def test_an_engine_that_dies_slowly_is_known_to_be_dead_and_one_that_drops_connections_is_not(
    campaign: CampaignConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its API server was there after ``DEATH_WAIT_S``, or had answered with an error: it was taken to live, and the accuracy pass stayed unanswered.
    vLLM whose engine core is killed answers 500, and its supervisor knows after 3 s. One that lives is not waited for until its supervisor would
    have ended it, at each connection."""
    monkeypatch.setattr(process, "DEATH_WAIT_S", 0.1)
    engine = replace(campaign.engine, stop_grace_s=20.0)
    with running_engine(LaunchRequest(engine, campaign.connector("plain"), tmp_path)) as running:
        running.wait_ready()
        begun_s = time.monotonic()
        assert running.death_behind_silence() is None
        assert time.monotonic() - begun_s < 20
        server = running.processes()["api_server"]
        server.suspend()
        dying = threading.Timer(0.5, server.kill)
        dying.start()
        answered: list[Output] = [{"error": "HTTPStatusError: Server error '500 Internal Server Error'"}]
        assert "SIGKILL" in (died_of(running, answered) or "it lives")
        dying.join()
