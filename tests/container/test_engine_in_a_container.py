"""The embedded engine in a container of every runtime that is here: what is seen of it, and that nothing of it outlives whoever started it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import httpx
import psutil
import pytest
from families import alive, within
from msgspec.structs import replace

from connector_tax.base.artifacts.supervisor import RECORD, record_supervisor, recorded_supervisor
from connector_tax.base.config import load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.config.model import ContainerConfig, EngineConfig, Runtime
from connector_tax.base.errors import ConfigError, EngineError
from connector_tax.run.engine.gpus import Cards
from connector_tax.run.engine.identity import engine_identity
from connector_tax.run.engine.ports import free_port, listeners
from connector_tax.run.engine.process import LaunchRequest, cpu_seconds, running_engine
from connector_tax.run.engine.supervised import end_leftovers, new_mark

CAMPAIGN = load_campaign(PROJECT_ROOT / "config" / "demo.yaml")
SECRET = "hf_NobodyMayReadThis0123456789abc"
ODD = "a b$(touch HERE)'{c}"
# A measurement of its own, for tests that kill it.
MEASURES = """
import sys, time
from msgspec.structs import replace
from pathlib import Path
from connector_tax.base.config import load_campaign
from connector_tax.base.config.model import ContainerConfig
from connector_tax.run.engine.process import LaunchRequest, running_engine
campaign = load_campaign(Path(sys.argv[1]))
engine = replace(campaign.engine, container=ContainerConfig(sys.argv[2], sys.argv[3]), stop_grace_s=2)
with running_engine(LaunchRequest(engine, campaign.connector("plain"), Path(sys.argv[4]))) as running:
    running.wait_ready()
    print(running.root, running.supervisor.pid, flush=True)
    time.sleep(120)
"""


def measurement(image: str, runtime: str, folder: Path) -> list[str]:
    """The command of one; it prints the pids of its container's first process and of its supervisor once the engine serves."""
    campaign = str(PROJECT_ROOT / "config" / "demo.yaml")
    return [sys.executable, "-c", MEASURES, campaign, image, runtime, str(folder)]


def engine_in(image: str, runtime: str, **changes: object) -> EngineConfig:
    return replace(CAMPAIGN.engine, container=ContainerConfig(image, runtime), **changes)  # type: ignore[arg-type]


def containers(runtime: str, mark: str) -> str:
    command = [runtime, "ps", "--all", "--quiet", "--filter", f"name=connector-tax-{mark}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_an_engine_serves_on_loopback_and_is_gone_afterwards(
    runtime: str, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    folder = tmp_path / ODD
    request = LaunchRequest(
        engine_in(image, runtime, args={**CAMPAIGN.engine.args, "api_key": SECRET}),
        CAMPAIGN.connector("nixl_both"),
        folder,
        step_log=folder / "steps" / "engine_step.jsonl",
        cpus=(min(os.sched_getaffinity(0)),),
    )
    with running_engine(request) as engine:
        engine.wait_ready()
        recorded = recorded_supervisor(folder)
        assert recorded is not None and containers(runtime, recorded.mark)
        (process,) = engine.processes().values()
        assert set(cpu_seconds(engine)) == {"api_server"}
        assert process.cpu_affinity() == list(request.cpus) and process.uids().real == os.getuid()
        assert {(x.address, x.port) for x in listeners() if x.pid == process.pid} == {
            ("127.0.0.1", engine.port)
        }
        of_the_launch = [
            psutil.Process(engine.supervisor.pid),
            *psutil.Process(engine.supervisor.pid).children(recursive=True),
        ]
        for one in (*of_the_launch, psutil.Process(engine.root), process):
            assert SECRET not in " ".join(one.cmdline())
        assert process.environ()["VLLM_API_KEY"] == process.environ()["HF_TOKEN"] == SECRET
        asked = [runtime, "inspect", containers(runtime, recorded.mark)]
        kept = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
        assert SECRET not in kept and recorded.mark in kept
        assert "PATH" not in process.environ() or process.environ()["PATH"] != os.environ["PATH"]
        prompt = {"model": engine.model, "prompt": [101] * 16, "max_tokens": 4}
        answer = httpx.post(
            f"{engine.base_url}/v1/completions", json=prompt, headers=engine.headers, trust_env=False
        )
        assert answer.status_code == 200, answer.text
        time.sleep(0.3)  # step records are written out
    assert not containers(runtime, recorded.mark) and not alive(process)
    assert list((folder / "steps").glob("engine_step.scheduler.*.jsonl"))
    kept = [p for p in folder.rglob("*") if p.is_file()]
    assert kept and not any(SECRET.encode() in p.read_bytes() for p in kept)
    assert not (folder / RECORD).exists() and not list(tmp_path.rglob("HERE"))


@contextmanager
def measuring(
    runtime: str, image: str, folder: Path
) -> Iterator[tuple["subprocess.Popen[str]", psutil.Process, psutil.Process]]:
    """A measurement with an engine that serves; it, the first process of the container, the supervisor."""
    command = measurement(image, runtime, folder)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        root, supervisor = map(int, running.stdout.readline().split())
        yield running, psutil.Process(root), psutil.Process(supervisor)
        running.kill()


@pytest.mark.parametrize("who", ["measurement", "supervisor"])
def test_nothing_outlives_a_kill_9(runtime: str, image: str, tmp_path: Path, who: str) -> None:
    """Of whoever measures, and of the supervisor, whose end kills the runtime's client; no later start has to clear anything."""
    with measuring(runtime, image, tmp_path) as (running, root, supervisor):
        recorded = recorded_supervisor(tmp_path)
        assert recorded is not None and containers(runtime, recorded.mark)
        engine = [root, *root.children(recursive=True)]
        assert len(engine) >= 2
        os.kill(running.pid if who == "measurement" else supervisor.pid, signal.SIGKILL)
        assert within(10, lambda: not any(map(alive, engine)))
        assert within(10, lambda: not containers(runtime, recorded.mark))


def test_a_container_that_is_left_all_the_same_is_removed_at_the_next_start(
    runtime: str, image: str, tmp_path: Path
) -> None:
    """One that was made and never started has no process by which it could be found."""
    mark = new_mark()
    made = [runtime, "create", f"--name=connector-tax-{mark}", "--network=none", image, "python3"]
    subprocess.run(made, capture_output=True, check=True)
    assert containers(runtime, mark)
    with subprocess.Popen(["true"]) as supervisor:
        record_supervisor(tmp_path, supervisor.pid, mark, (), cast(Runtime, runtime))
    end_leftovers(tmp_path, grace_s=0.5)
    assert not containers(runtime, mark) and not (tmp_path / RECORD).exists()
    record_supervisor(tmp_path, supervisor.pid, mark, (), cast(Runtime, runtime))
    end_leftovers(tmp_path, grace_s=0.5)  # it is no error that there is none


def test_launch_sh_starts_the_same_container_by_hand(some_runtime: str, image: str, tmp_path: Path) -> None:
    with running_engine(
        LaunchRequest(engine_in(image, some_runtime), CAMPAIGN.connector("plain"), tmp_path)
    ) as engine:
        engine.wait_ready()
    environment = {**os.environ, "PORT": str(free_port()), "CONNECTOR_TAX_PROJECT": str(PROJECT_ROOT)}
    command = ["bash", str(tmp_path / "launch.sh")]
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
    ) as by_hand:
        models = f"http://127.0.0.1:{environment['PORT']}/v1/models"

        def serves() -> bool:
            try:
                return httpx.get(models, trust_env=False).status_code == 200
            except httpx.HTTPError:
                return False

        assert within(20, serves), by_hand.stderr
        by_hand.terminate()
        assert by_hand.wait(15) == 128 + signal.SIGTERM
    assert within(10, lambda: not containers(some_runtime, "by-hand"))


def test_what_is_not_there_is_said_in_one_message(runtime: str, image: str) -> None:
    with pytest.raises(ConfigError, match=f"{runtime} has no such image here, and none is pulled"):
        engine_identity(engine_in("localhost/nobody/has-this:1", runtime), Cards((), 0))
    with pytest.raises(ConfigError, match="has no such image here") as told:
        engine_identity(engine_in("no $(touch HERE) image", runtime), Cards((), 0))
    assert f"{runtime} pull 'no $(touch HERE) image'" in str(told.value)
    with pytest.raises(EngineError, match=rf"nopython in image {image} does not run"):
        engine_identity(engine_in(image, runtime, python="nopython"), Cards((), 0))
