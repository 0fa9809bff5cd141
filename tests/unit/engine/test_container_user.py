"""Who an engine in a container is, and what stays this host's own where the config sets it for the engine."""

import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from launches import by_hand, launch_of
from msgspec.structs import replace

from connector_tax.base.config import load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.config.model import ContainerConfig
from connector_tax.run.engine import container
from connector_tax.run.engine.container import (
    INIT,
    PACKAGE,
    Contained,
    Image,
    contained,
    image_of,
    launch_words,
    passed_names,
    probe_words,
)
from connector_tax.run.engine.gpus import Cards
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


def box(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, environment: dict[str, str], **env: str
) -> Contained:
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path))
    engine = replace(CAMPAIGN.engine, container=ContainerConfig("i"), env={**CAMPAIGN.engine.env, **env})
    where: dict[str, Any] = {"mark": "m", "cards": Cards((), 0), "cpus": (), "writes": ()}
    image = Image("podman", "1", "i", DIGEST, "0:0")
    return contained(engine, CAMPAIGN.connector("plain"), image, environment, **where)


def test_what_the_config_sets_for_the_engine_is_not_what_the_runtimes_client_goes_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bash and podman would be looked for in the image's PATH, and podman would write into a TMPDIR that only the image has."""
    monkeypatch.delenv("CONTAINER_HOST", raising=False)
    monkeypatch.delenv("TMPDIR", raising=False)
    environment = {**os.environ, **OF_THE_IMAGE, "HF_TOKEN": "planted"}
    told = launch_words(box(monkeypatch, tmp_path, environment, **OF_THE_IMAGE, HF_TOKEN="planted"))
    assert {f"--env={name}={value}" for name, value in OF_THE_IMAGE.items()} <= set(told)
    assert "--env=HF_TOKEN" in told and not any("planted" in word for word in told)
    assert environment["PATH"] == os.environ["PATH"] and environment["HF_TOKEN"] == "planted"
    assert not {"CONTAINER_HOST", "TMPDIR"} & set(environment)


@pytest.mark.parametrize("runtime", ["podman", "docker"])
def test_an_engine_has_a_name_for_its_user(runtime: Any) -> None:
    """No user of this host is in an image's /etc/passwd; without USER Python's getpass fails there, and with it ``import torch`` before 2.13."""
    image = Image(runtime, "1", "i", DIGEST, "1000:1000")
    assert "--env=USER=connector-tax" in probe_words(image, [])


def test_a_name_that_the_config_gives_is_the_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = launch_words(box(monkeypatch, tmp_path, {**os.environ, "USER": "me"}, USER="me"))
    assert "--env=USER" in told and not any(word.startswith("--env=USER=") for word in told)
    assert "USER" not in passed_names({"USER": "me"}, ())


def test_an_engine_has_the_groups_of_its_user_and_no_user_namespace_of_somebodys_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Models of a cluster are often a group's; PODMAN_USERNS, containers.conf or userns-remap would make files somebody else's."""
    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr(os, "getgroups", lambda: [2000, 1000, 500])
    monkeypatch.setattr(os, "getgid", lambda: 1000)
    groups = {}
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    for runtime, security in (("docker", "[name=seccomp]"), ("docker", "[name=rootless]"), ("podman", "")):
        answers = iter([f"1 {security}", f"{DIGEST} null"])
        monkeypatch.setattr(container, "_answer", lambda *words, answers=answers: next(answers))
        image = image_of.__wrapped__(ContainerConfig("i", runtime))
        told = probe_words(image, [])
        assert "--userns=host" in told
        groups[runtime, image.user] = [word for word in told if word.startswith("--group-add")]
    assert groups == {
        ("docker", "1000:1000"): ["--group-add=500", "--group-add=2000"],
        ("docker", "0:0"): [],
        ("podman", "0:0"): [],
    }


def test_a_container_of_docker_by_hand_is_whoever_starts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the campaign's user, as who another one could not write, and as root would leave root's files."""
    for name, text in (
        ("docker", "printf '%s\\n' \"$@\""),
        ("id", "case $1 in -u) echo 71;; -g) echo 72;; -G) echo 72 73;; esac"),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path))
    engine, plain = replace(CAMPAIGN.engine, container=ContainerConfig("i")), CAMPAIGN.connector("plain")
    image = Image("docker", "1", "i", DIGEST, f"{os.getuid()}:{os.getgid()}", groups=(54321,))
    launch = contained(
        engine, plain, image, {**os.environ}, mark="m", cards=Cards((), 0), cpus=(), writes=(tmp_path,)
    )
    (tmp_path / "launch.sh").write_text(
        launch_of(engine, plain, contained=launch, steps=tmp_path).script(plain)
    )
    words = by_hand(tmp_path / "launch.sh", CONNECTOR_TAX_FOLDER=str(tmp_path)).stdout.splitlines()
    ids = [word for word in words if word.startswith(("--user=", "--group-add="))]
    assert ids == ["--user=71:72", "--group-add=72", "--group-add=73"]


@pytest.mark.parametrize("name", ["NVIDIA_API_KEY", "DOCKER_PASSWORD", "STORAGE_ACCOUNT_KEY"])
def test_a_secret_is_handed_over_by_whatever_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The first was in the runtime's database, and the others in the client's arguments, which every user of the host reads."""
    launch = box(monkeypatch, tmp_path, {**os.environ, name: "planted"}, **{name: "planted"})
    told = launch_words(launch)
    assert f"--env={name}" in told and not any("planted" in word for word in told)
    assert name in launch.handed


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
    assert name in launch.handed and f"--env=PATH={path}" in told


def test_values_of_variables_come_through_a_containers_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """podman's and docker's own databases keep those of a container's configuration when it is gone."""
    kept = ["NVIDIA_DRIVER_CAPABILITIES", "PATH", "PYTHONPATH", "VLLM_PLUGINS", "CONNECTOR_TAX_STEP_FLUSH_S"]
    given = dict.fromkeys(["HF_TOKEN", *kept], "x")
    assert set(box(monkeypatch, tmp_path, given, **given).handed) == {"HF_TOKEN"}
    podman = tmp_path / "podman"
    # It gets no variable by way of its own environment, as a container does that is started by somebody else.
    podman.write_text(
        '#!/bin/sh\necho "client: ${HF_TOKEN-none} ${LONG-none}" >&2\n'
        'while [ "$1" != sha256:' + "ab" * 32 + ' ]; do shift; done; shift; exec "$@"\n'
    )
    podman.chmod(0o755)
    odd = "a b\n=c'\udcff" + "x" * 100_000
    (tmp_path / "shows.py").write_text(
        "import os; print(os.environ['HF_TOKEN'], os.environ['LONG'] == "
        f"{odd!r}, 'NOT_SET' in os.environ, {HANDED!r} in os.environ)"
    )
    # The container's first process, and then the engine.
    (tmp_path / "python3").write_text(
        f'#!/bin/sh\n[ "$1" != -m ] || set -- {tmp_path}/shows.py\nexec {sys.executable} "$@"\n'
    )
    (tmp_path / "python3").chmod(0o755)
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path))
    engine = replace(CAMPAIGN.engine, container=ContainerConfig("i"), env={"HF_TOKEN": "planted-token-1"})
    plain = CAMPAIGN.connector("plain")
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "HF_TOKEN": "planted-token-1",
        "LONG": odd,
    }
    where: dict[str, Any] = {"mark": "m", "cards": Cards((), 0), "cpus": (), "writes": ()}
    names = ("HF_TOKEN", "LONG", "NOT_SET")
    launch = dataclasses.replace(
        contained(engine, plain, Image("podman", "1", "i", DIGEST, "0:0"), environment, **where),
        names=names,
        handed=names,
    )
    environment[HANDED] = " ".join(names)
    made = launch_of(engine, plain, contained=launch, environment=environment)
    supervised = [
        sys.executable,
        "-m",
        "connector_tax.run.engine.supervisor",
        "1",
        "--lifeline",
        *made.command(),
    ]
    with subprocess.Popen(
        supervised,
        env=made.variables(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
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
