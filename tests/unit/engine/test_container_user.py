"""Who an engine in a container is, and what stays this host's own where the config sets it for the engine."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from connector_tax.base.config import load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.config.model import ContainerConfig
from connector_tax.run.engine import image as image_module
from connector_tax.run.engine.contained import contained, leave_to_the_client
from connector_tax.run.engine.container import (
    INIT,
    PACKAGE,
    handed_over,
    launch_words,
    passed_names,
    probe_words,
)
from connector_tax.run.engine.gpus import Cards
from connector_tax.run.engine.image import Image
from connector_tax.run.engine.supervisor import HANDED

DIGEST = "sha256:" + "ab" * 32
CAMPAIGN = load_campaign(PROJECT_ROOT / "config" / "demo.yaml")
# What the image has of these, and the host may not.
OF_THE_IMAGE = {
    "PATH": "/opt/venv/bin:/bin",
    "TMPDIR": "/scratch/in/the/image",
    "LD_PRELOAD": "/opt/libtcmalloc.so",
    "CONTAINER_HOST": "tcp://127.0.0.1:1",
}


def words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, environment: dict[str, str], **env: str
) -> list[str]:
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path))
    engine = replace(CAMPAIGN.engine, container=ContainerConfig("i"), env={**CAMPAIGN.engine.env, **env})
    where: dict[str, Any] = {"mark": "m", "cards": Cards((), 0), "cpus": (), "writes": ()}
    image = Image("podman", "1", "i", DIGEST, "0:0")
    return launch_words(contained(engine, CAMPAIGN.connector("plain"), image, environment, **where))


def test_what_the_config_sets_for_the_engine_is_not_what_the_runtimes_client_goes_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bash and podman would be looked for in the image's PATH, and podman would write into a TMPDIR that only the image has."""
    monkeypatch.delenv("CONTAINER_HOST", raising=False)
    monkeypatch.delenv("TMPDIR", raising=False)
    environment = {**os.environ, **OF_THE_IMAGE, "HF_TOKEN": "planted"}
    told = words(monkeypatch, tmp_path, environment, **OF_THE_IMAGE, HF_TOKEN="planted")
    assert {f"--env={name}={value}" for name, value in OF_THE_IMAGE.items()} <= set(told)
    assert "--env=HF_TOKEN" in told and not any("planted" in word for word in told)
    leave_to_the_client(environment, [*OF_THE_IMAGE, "HF_TOKEN"])
    assert environment["PATH"] == os.environ["PATH"] and environment["HF_TOKEN"] == "planted"
    assert not {"CONTAINER_HOST", "TMPDIR"} & set(environment)


@pytest.mark.parametrize("runtime", ["podman", "docker"])
def test_an_engine_has_a_name_for_its_user(runtime: Any) -> None:
    """No user of this host is in an image's /etc/passwd; without USER Python's getpass fails there, and with it ``import torch`` before 2.13."""
    image = Image(runtime, "1", "i", DIGEST, "1000:1000")
    assert "--env=USER=connector-tax" in probe_words(image, [])


def test_a_name_that_the_config_gives_is_the_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = words(monkeypatch, tmp_path, {**os.environ, "USER": "me"}, USER="me")
    assert "--env=USER" in told and not any(word.startswith("--env=USER=") for word in told)
    assert "USER" not in passed_names({"USER": "me"}, ())


def test_an_engine_has_the_groups_of_its_user_and_no_user_namespace_of_somebodys_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Models of a cluster are often a group's; PODMAN_USERNS, containers.conf or userns-remap would make files somebody else's."""
    answer = subprocess.CompletedProcess([], 0, f"{DIGEST} null\n", "")
    monkeypatch.setattr(image_module, "_ask", lambda *words: answer)
    monkeypatch.setattr(os, "getgroups", lambda: [2000, 1000, 500])
    monkeypatch.setattr(os, "getgid", lambda: 1000)
    monkeypatch.setattr(image_module, "_podman", lambda: ("1", "0:0"))
    groups = {}
    for runtime, user in (("docker", "1000:1000"), ("docker", "0:0"), ("podman", "0:0")):
        monkeypatch.setattr(image_module, "_daemon", lambda user=user: ("1", user))
        told = probe_words(image_module._image.__wrapped__(runtime, "i"), [])
        assert "--userns=host" in told
        groups[runtime, user] = [word for word in told if word.startswith("--group-add")]
    assert groups == {
        ("docker", "1000:1000"): ["--group-add=500", "--group-add=2000"],
        ("docker", "0:0"): [],
        ("podman", "0:0"): [],
    }


def test_a_container_of_docker_by_hand_is_whoever_starts_it(tmp_path: Path) -> None:
    """Not the campaign's user, as who another one could not write, and as root would leave root's files."""
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    docker.chmod(0o755)
    words = [
        "docker",
        "run",
        f"--user={os.getuid()}:{os.getgid()}",
        "--group-add=54321",
        "--rm",
        "i",
        "python3",
    ]
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "MODEL": "m",
        "ENGINE_PYTHON": "python3",
        "LAUNCH_SH_OUT": str(tmp_path / "launch.sh"),
        "RECORD_PYTHON": sys.executable,
        "RECORD_FOLDER": str(tmp_path),
    }
    script = str(PROJECT_ROOT / "launch" / "launch_plain.sh")
    launched = ["bash", script, "--in-container", str(len(words)), *words]
    ran = subprocess.run(launched, env=environment, capture_output=True, text=True, check=True).stdout
    assert words[1:] == ran.splitlines()[: len(words) - 1]
    (tmp_path / "id").write_text("#!/bin/sh\ncase $1 in -u) echo 71;; -g) echo 72;; -G) echo 72 73;; esac\n")
    (tmp_path / "id").chmod(0o755)
    by_hand = {
        **environment,
        "CONNECTOR_TAX_PROJECT": str(PROJECT_ROOT),
        "CONNECTOR_TAX_FOLDER": str(tmp_path),
    }
    command = ["bash", environment["LAUNCH_SH_OUT"]]
    again = subprocess.run(
        command, env=by_hand, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert again[:6] == ["run", "--user=71:72", "--group-add=72", "--group-add=73", "--rm", "i"]


@pytest.mark.parametrize("name", ["NVIDIA_API_KEY", "DOCKER_PASSWORD", "STORAGE_ACCOUNT_KEY"])
def test_a_secret_is_handed_over_by_whatever_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The first was in the runtime's database, and the others in the client's arguments, which every user of the host reads."""
    told = words(monkeypatch, tmp_path, {**os.environ, name: "planted"}, **{name: "planted"})
    assert f"--env={name}" in told and not any("planted" in word for word in told)
    assert handed_over([name]) == [name]


@pytest.mark.parametrize("name", ["STORAGE_DSN", "DOCKER_REGISTRY", "NVIDIA_NIM", "PYTHON_INDEX"])
@pytest.mark.parametrize("value", ["${DB_PASSWORD}", "s3://${DB_PASSWORD}@h", "https://me:planted@registry"])
def test_a_secret_is_handed_over_that_its_name_does_not_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """By what it refers to, or by its look: it was in the client's arguments, or in the runtime's database."""
    path = "/opt/sk-learn-env1234567/bin"  # a folder, whatever it looks like
    monkeypatch.setenv("DB_PASSWORD", "planted")
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path))
    engine = replace(CAMPAIGN.engine, container=ContainerConfig("i"), env={name: value, "PATH": path})
    where: dict[str, Any] = {"mark": "m", "cards": Cards((), 0), "cpus": (), "writes": ()}
    image = Image("podman", "1", "i", DIGEST, "0:0")
    launch = contained(engine, CAMPAIGN.connector("plain"), image, {**os.environ}, **where)
    told = launch_words(launch)
    assert f"--env={name}" in told and not any("planted" in word for word in told)
    assert name in handed_over(launch.names, launch.secret) and f"--env=PATH={path}" in told


def test_values_of_variables_come_through_a_containers_standard_input(tmp_path: Path) -> None:
    """podman's and docker's own databases keep those of a container's configuration when it is gone."""
    kept = ["NVIDIA_DRIVER_CAPABILITIES", "PATH", "PYTHONPATH", "VLLM_PLUGINS", "CONNECTOR_TAX_RUN", HANDED]
    assert handed_over(["HF_TOKEN", *kept]) == ["HF_TOKEN"]
    runtime = tmp_path / "runtime"
    # It gets no variable by way of its own environment, as a container does that is started by somebody else.
    runtime.write_text('#!/bin/sh\necho "client: ${HF_TOKEN-none} ${LONG-none}" >&2\nexec "$@"\n')
    runtime.chmod(0o755)
    init = [sys.executable, str(INIT), str(PACKAGE.parent), "1", ""]
    odd = "a b\n=c'\udcff" + "x" * 100_000
    environment = {
        **os.environ,
        "MODEL": "m",
        "ENGINE_PYTHON": sys.executable,
        "ENGINE_MODULE": "shows_itself",
        "ENGINE_PYTHONPATH": str(tmp_path),
        "HF_TOKEN": "planted-token-1",
        "LONG": odd,
        HANDED: "HF_TOKEN LONG NOT_SET",
    }
    (tmp_path / "shows_itself.py").write_text(
        "import os, sys; print(os.environ['HF_TOKEN'], os.environ['LONG'] == "
        f"{odd!r}, 'NOT_SET' in os.environ, {HANDED!r} in os.environ)"
    )
    words = [str(runtime), *init]
    script = str(PROJECT_ROOT / "launch" / "launch_plain.sh")
    command = ["bash", script, "--in-container", str(len(words)), *words]
    supervised = [sys.executable, "-m", "connector_tax.run.engine.supervisor", "1", "--lifeline", *command]
    with subprocess.Popen(
        supervised, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as done:
        assert done.stdout is not None and done.stderr is not None
        told = done.stdout.read().decode(), done.stderr.read().decode()
    assert told == ("planted-token-1 True False False\n", "client: none none\n")


def test_a_container_that_is_handed_nothing_ends(tmp_path: Path) -> None:
    """Whoever had it to hand over was killed before."""
    init = [sys.executable, str(INIT), str(PACKAGE.parent), "1", "", "touch", str(tmp_path / "ran")]
    environment = {**os.environ, HANDED: "HF_TOKEN"}
    done = subprocess.run(init, env=environment, input=b"HF_TOKEN=half", timeout=10)
    assert done.returncode == 143 and not (tmp_path / "ran").exists()
