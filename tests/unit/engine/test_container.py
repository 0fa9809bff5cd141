"""What starts an engine in a container, word by word, who it is there, and its first process; nothing here needs a container runtime."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
import yaml
from families import within
from launches import by_hand, launch_of
from msgspec.structs import replace as replace_struct

from connector_tax.base.artifacts.supervisor import (
    RECORD,
    record_supervisor,
    recorded_supervisor,
    start_ticks,
)
from connector_tax.base.config import CampaignConfig, load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.config.model import ContainerConfig, Runtime
from connector_tax.base.documents.identity import EngineIdentity, other_versions
from connector_tax.base.errors import ConfigError, EngineError
from connector_tax.base.plan import campaign_document, config_of
from connector_tax.run.engine import container, identity, supervised
from connector_tax.run.engine.command import (
    engine_environment,
    engine_python,
    given_environment,
    model_inside,
    model_mounts,
    refuse_a_model_elsewhere,
)
from connector_tax.run.engine.container import (
    INIT,
    PACKAGE,
    Contained,
    Image,
    contained,
    image_of,
    interpreter,
    launch_words,
    passed_names,
    probe_words,
)
from connector_tax.run.engine.gpus import Cards, Gpu, gpu_words, visible_inside
from connector_tax.run.engine.supervised import end_leftovers, remove_container
from connector_tax.run.engine.supervisor import HANDED

CONFIG = Path(__file__).parents[3] / "config"
DIGEST = "sha256:" + "ab" * 32
ODD = "a b$(touch HERE)'{c}"


def image(runtime: Runtime, user: str = "0:0") -> Image:
    return Image(runtime, "1.2", "registry/vllm:v1", DIGEST, user)


def cards(*indices: int, mig: bool = False) -> Cards:
    gpus = tuple(Gpu(i, f"GPU-{i}", "H200", 1, f"GPU-{i}" if not mig else "GPU-card") for i in indices)
    return Cards(gpus, 0, {"CUDA_VISIBLE_DEVICES": ",".join(g.uuid for g in gpus)})


def launch(runtime: Runtime, **changes: Any) -> Contained:
    return replace(
        Contained(
            image=image(runtime),
            python="python3",
            mark="c0ffee",
            names=("HF_TOKEN", "PYTHONPATH"),
            # A runtime refuses a place that is given twice.
            reads=(Path("/models") / ODD, Path("/models") / ODD, Path("/home/me")),
            writes=(Path("/results/steps"), Path("/home/me")),
            home=Path("/home/me"),
            cards=cards(),
            cpus=(0, 2),
            grace_s=5.0,
        ),
        **changes,
    )


def campaign_with(container: object, tmp_path: Path, **engine: object) -> CampaignConfig:
    config = yaml.safe_load((CONFIG / "demo.yaml").read_text())
    config["engine"] |= {"container": container, **engine}
    path = tmp_path / "campaign.yaml"
    path.write_text(yaml.safe_dump(config))
    return load_campaign(path)


@pytest.mark.parametrize("runtime", ["podman", "docker"])
def test_an_engine_has_this_hosts_loopback_and_nothing_else_that_it_does_not_need(runtime: Runtime) -> None:
    words = launch_words(launch(runtime))
    assert words[:4] == [runtime, "run", "--rm", "--interactive"]
    assert words[-6:] == [DIGEST, "python3", str(INIT), str(PACKAGE.parent), "5", "0,2"]
    assert {"--network=host", "--ipc=private", "--pull=never", "--log-driver=none", "--entrypoint="} <= set(
        words
    )
    assert {"--cap-drop=ALL", "--security-opt=no-new-privileges", "--name=connector-tax-c0ffee"} <= set(words)
    assert [w for w in words if w.startswith("--mount=")] == [
        f"--mount=type=bind,source=/models/{ODD},target=/models/{ODD},ro",
        "--mount=type=bind,source=/results/steps,target=/results/steps",
        "--mount=type=bind,source=/home/me,target=/home/me",
    ]
    assert not any(
        word.startswith(("--publish", "--privileged", "--pid=", "--device", "--gpus", "--volume"))
        for word in words
    )


def test_variables_are_passed_by_name_alone() -> None:
    """Whoever lists this host's processes sees the names."""
    words = launch_words(launch("docker"))
    assert [w for w in words if w.startswith("--env=") and not w.lower().endswith("_proxy=")] == [
        "--env=USER=connector-tax",
        "--env=HF_TOKEN",
        "--env=PYTHONPATH",
        "--env=HOME=/home/me",
    ]


def test_no_proxy_of_the_users_own_gets_into_a_container() -> None:
    """docker sets those of its client's config.json in every container, with their passwords, unless they are set already."""
    docker = launch_words(launch("docker", names=("HTTP_PROXY",)))
    assert "--env=HTTP_PROXY" in docker and "--env=HTTP_PROXY=" not in docker
    assert {"--env=http_proxy=", "--env=HTTPS_PROXY=", "--env=all_proxy="} <= set(docker)
    assert {"--env=HTTP_PROXY=", "--env=no_proxy="} <= set(probe_words(image("docker"), []))
    podman = launch_words(launch("podman"))
    assert "--http-proxy=false" in podman and not any("proxy=" in w for w in podman if w.startswith("--env"))


def test_a_question_to_the_image_has_no_network_no_variables_and_nothing_to_write(tmp_path: Path) -> None:
    words = probe_words(image("docker", "1000:1000"), [tmp_path])
    assert "--network=none" in words and "--user=1000:1000" in words and words[-1] == DIGEST
    assert [w for w in words if w.startswith("--env") and not w.endswith("=")] == ["--env=USER=connector-tax"]
    assert [w for w in words if w.startswith("--mount")] == [
        f"--mount=type=bind,source={tmp_path},target={tmp_path},ro"
    ]


@pytest.mark.parametrize("name", ["a,b", 'a"b', "a\nb"])
def test_a_folder_that_a_mount_would_read_otherwise_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be mounted into a container"):
        launch_words(launch("docker", reads=(Path("/models") / name,)))


def test_cards_are_given_by_uuid() -> None:
    assert gpu_words("docker", cards()) == gpu_words("podman", cards()) == []
    assert gpu_words("docker", cards(3)) == ['--gpus="device=GPU-3"']
    assert gpu_words("docker", cards(3, 1)) == ['--gpus="device=GPU-3,GPU-1"']
    assert gpu_words("podman", cards(3, 1)) == [
        "--device=nvidia.com/gpu=GPU-3",
        "--device=nvidia.com/gpu=GPU-1",
    ]


def test_cards_inside_are_counted_from_zero_in_the_order_of_the_bus() -> None:
    assert visible_inside(cards(5)) == {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert visible_inside(cards(6, 2, 4))["CUDA_VISIBLE_DEVICES"] == "2,0,1"
    assert visible_inside(cards(0, mig=True)) == {"CUDA_VISIBLE_DEVICES": "GPU-0"}
    assert visible_inside(Cards((), 0, {"CUDA_VISIBLE_DEVICES": ""})) == {"CUDA_VISIBLE_DEVICES": ""}


def test_a_container_gets_what_shapes_an_engine_and_no_place_of_this_host() -> None:
    environment = dict.fromkeys(
        [
            "VLLM_USE_V1",
            "HF_TOKEN",
            "HF_HOME",
            "CUDA_HOME",
            "LD_LIBRARY_PATH",
            "VLLM_CACHE_ROOT",
            "PATH",
            "AWS_SECRET_ACCESS_KEY",
        ],
        "x",
    )
    environment |= {"CONNECTOR_TAX_REFERENCES": "x", "CONNECTOR_TAX_CACHE": "x", "DB": "x"}
    names = passed_names(environment, ["DB", "LMCACHE_CONFIG_FILE"])
    assert {"VLLM_USE_V1", "HF_TOKEN", "DB", "LMCACHE_CONFIG_FILE", "CONNECTOR_TAX_RUN", "PYTHONPATH"} <= set(
        names
    )
    unwanted = {"HF_HOME", "CUDA_HOME", "LD_LIBRARY_PATH", "VLLM_CACHE_ROOT", "PATH", "AWS_SECRET_ACCESS_KEY"}
    assert not set(names) & {*unwanted, "CONNECTOR_TAX_REFERENCES", "CONNECTOR_TAX_CACHE"}


def test_the_model_is_mounted_with_where_its_links_lead(tmp_path: Path) -> None:
    """As in the hub's cache."""
    snapshot, blobs = tmp_path / "snapshots" / "1", tmp_path / "blobs"
    for folder in (snapshot, blobs):
        folder.mkdir(parents=True)
    (blobs / "x").write_text("{}")
    (snapshot / "config.json").symlink_to("../../blobs/x")
    assert model_mounts(snapshot) == (snapshot, blobs)


def test_of_links_in_a_model_only_what_they_name_is_mounted(tmp_path: Path) -> None:
    """Not the folder around it, which may hold anything; and one that leads nowhere stops no launch."""
    model, private = tmp_path / "model", tmp_path / "private"
    model.mkdir()
    (private / "adapter").mkdir(parents=True)
    (private / "v1.json").write_text("{}")
    (private / "now.json").symlink_to("v1.json")
    for name, place in {
        "a": "../private/now.json",
        "b": private / "adapter",
        "c": "/nowhere/at/all",
        "d": "d",
    }.items():
        (model / name).symlink_to(place)
    assert model_mounts(model) == (model, private / "adapter", private / "now.json", private / "v1.json")


def test_an_engine_imports_what_its_image_answers_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """PYTHONPATH of the image, unless the config says otherwise; never that of this host's shell, whose places an image may have as well."""
    monkeypatch.setattr(shutil, "which", lambda name: name)
    told = [f'{DIGEST} ["PATH=/bin","PYTHONPATH=/opt/vllm:/opt/a=b"]', f"{DIGEST} null"]
    for answer, path in zip(told, ("/opt/vllm:/opt/a=b", ""), strict=True):
        monkeypatch.setattr(container, "_answer", lambda *words, answer=answer: answer)
        found = image_of.__wrapped__(ContainerConfig("i"))
        assert (found.digest, found.pythonpath) == (DIGEST, path)
        assert container.python_path(found, {"PYTHONPATH": "/mine"}) == "/mine"
        assert container.python_path(found, {}) == path


def test_a_variable_may_hold_no_word_for_the_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for section, value in (
        ("image", "--privileged"),
        ("mounts", "relative"),
        ("mounts", "/a/.."),
    ):
        monkeypatch.setenv("HELD", value)
        given = {"image": "i", section: "${HELD}" if section == "image" else ["${HELD}"]}
        with pytest.raises(ConfigError, match=rf"engine\.container\.{section}: '{value}'"):
            campaign_with(given, tmp_path)


def test_a_launch_sees_the_instrument_its_model_and_its_own_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    model, extra = tmp_path / "model", tmp_path / "extra"
    model.mkdir()
    extra.mkdir()
    (model / "config.json").write_text("{}")
    config = campaign_with(
        {"image": "i", "mounts": [str(extra)]}, tmp_path, kind="vllm", model=str(model), model_file=None
    )
    store = tmp_path / f"connector-tax-stores-{os.getuid()}" / "3"
    connector = msgspec.structs.replace(
        config.connector("lmcache_only"), env={"LMCACHE_LOCAL_DISK": f"file://{store}"}
    )
    environment = engine_environment(config.engine, connector, cards())
    steps = tmp_path / "run" / "steps"
    made = contained(
        config.engine,
        connector,
        image("podman"),
        environment,
        mark="m",
        cards=cards(),
        cpus=(1,),
        writes=(steps,),
    )
    assert made.reads == (INIT.parent, PROJECT_ROOT / "patches", PACKAGE, model, extra)
    assert made.writes == (steps, store, made.home) and made.home.parent == tmp_path / "cache" / "containers"
    assert made.home.stat().st_mode & 0o777 == 0o700
    assert (made.python, made.cpus, model_inside(config.engine)) == ("python3", (1,), model)
    assert set(given_environment(config.engine, connector)) <= set(made.names)


def test_mounts_and_models_that_are_not_here_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))
    config = campaign_with({"image": "i", "mounts": ["/nowhere/at/all"]}, tmp_path)
    where: dict[str, Any] = {"mark": "m", "cards": cards(), "cpus": (), "writes": ()}
    with pytest.raises(ConfigError, match=r"engine\.container\.mounts: /nowhere/at/all: no such folder"):
        contained(config.engine, config.connector("plain"), image("podman"), {}, **where)
    monkeypatch.setattr("connector_tax.run.engine.container.image_of", lambda container: image("podman"))
    with pytest.raises(ConfigError, match=r"engine\.container\.mounts: /nowhere/at/all: no such folder"):
        interpreter(config.engine)
    missing = msgspec.structs.replace(config.engine, kind="vllm", model="nobody/nothing")
    with pytest.raises(
        ConfigError, match=r"engine\.model: model nobody/nothing is not on this host \(no config.json\)"
    ):
        model_inside(missing)
    with pytest.raises(ConfigError, match="downloads nothing: bring the model there first"):
        refuse_a_model_elsewhere(missing, "model nobody/nothing is not on this host")


def test_a_text_is_the_image_alone_and_campaigns_without_one_are_as_before(tmp_path: Path) -> None:
    config = campaign_with("registry/vllm:v1", tmp_path)
    assert config.engine.container == ContainerConfig("registry/vllm:v1")
    assert config_of(campaign_document(config, date="2026-01-01", created_utc="")) == config
    assert engine_python(config.engine) == "python3"
    assert (
        engine_python(msgspec.structs.replace(config.engine, python="/opt/venv/bin/python"))
        == "/opt/venv/bin/python"
    )
    assert "container" not in load_campaign(CONFIG / "demo.yaml").to_json()["engine"]


@pytest.mark.parametrize(
    ("container", "said"),
    [
        ("-v/:/host", "is not allowed; wanted: `str` matching"),
        ({"image": "--privileged"}, "is not allowed; wanted: `str` matching"),
        ({"image": "i", "options": ["--privileged"]}, "unknown key 'options'"),
        ({"image": "${NO_SUCH_VARIABLE}"}, "that environment variable is not set"),
    ],
)
def test_a_section_that_says_something_else_is_one_message(
    container: object, said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"engine\.container") as told:
        campaign_with(container, tmp_path)
    assert said in str(told.value)


def test_a_runtime_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"engine\.container\.runtime: docker: no such program on PATH"):
        image_of(ContainerConfig("i", "docker"))
    with pytest.raises(ConfigError, match=r"podman: no such program on PATH.* podman, docker that is"):
        image_of(ContainerConfig("i"))
    monkeypatch.setattr("connector_tax.run.engine.supervised.REMOVE_WITHIN_S", 0.0)
    with pytest.raises(EngineError, match="container connector-tax-m may still be there"):
        remove_container("docker", "m")
    (tmp_path / "docker").write_text("#!/bin/sh\necho no >&2\nexit 1\n")
    (tmp_path / "docker").chmod(0o755)
    with pytest.raises(EngineError, match=r"engine\.container: docker info failed: no\. .*may this user"):
        image_of(ContainerConfig("j"))


@pytest.mark.parametrize("runtime", ["podman", "docker"])
def test_what_podman_has_lost_sight_of_is_ended(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that was killed while it made the container; another launch's is let alone, and so is who only talks of it."""
    monkeypatch.setattr(supervised, "_removed", lambda runtime, name: None)
    monkeypatch.setattr(supervised, "MONITOR_ENDS_WITHIN_S", 0.2)
    waits = "sleep 60 > /dev/null & echo $!; wait"

    def stands_in(*words: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(words, executable="/bin/bash", stdout=subprocess.PIPE, text=True)

    with (
        stands_in("/usr/bin/conmon", "-c", waits, "-n", "connector-tax-m") as lost,
        stands_in("conmon", "-c", waits, "-n", "connector-tax-m2") as other,
        stands_in("watch", "-c", waits, "-n", "connector-tax-m") as talks,
    ):
        below = [int(process.stdout.readline()) for process in (lost, other, talks) if process.stdout]
        remove_container(runtime, "m")
        ended = runtime == "podman"
        time.sleep(0.1)
        assert (lost.poll() is not None, start_ticks(below[0]) is None) == (ended, ended)
        assert all(start_ticks(pid) is not None for pid in (other.pid, talks.pid, *below[1:]))
        for pid in (*below, other.pid, talks.pid, lost.pid):
            if start_ticks(pid) is not None:
                os.kill(pid, signal.SIGKILL)


def test_nobody_is_ended_who_has_the_number_of_a_conmon_that_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised, "_removed", lambda runtime, name: None)
    monkeypatch.setattr(supervised, "MONITOR_ENDS_WITHIN_S", 0)
    words = ("conmon", "-c", "echo; read", "-n", "connector-tax-m")
    pipe = subprocess.PIPE
    with subprocess.Popen(words, executable="/bin/bash", stdin=pipe, stdout=pipe) as stranger:
        assert stranger.stdout is not None and stranger.stdout.readline()
        asked: list[int] = []

        def of_another_then(pid: int) -> int | None:
            """The start of a conmon before it, the first time."""
            asked.extend([pid] * (pid == stranger.pid))
            ticks = start_ticks(pid)
            return ticks - 1 if ticks is not None and asked == [pid] and pid == stranger.pid else ticks

        monkeypatch.setattr(supervised, "start_ticks", of_another_then)
        remove_container("podman", "m")
        time.sleep(0.1)
        lives = stranger.poll() is None
        stranger.kill()
        assert lives and len(asked) > 1


def test_another_image_is_another_engine_and_so_is_none() -> None:
    def measured(**versions: str) -> EngineIdentity:
        return EngineIdentity(versions=versions, gpu=(), host={})

    one, other, none = measured(image="sha256:1"), measured(image="sha256:2"), measured()
    assert other_versions(one, other) == ["image sha256:1 / sha256:2"]
    assert other_versions(one, none) == ["image sha256:1 / None"]
    assert other_versions(one, one) == other_versions(none, none) == []
    podman, docker = (
        replace_struct(one, container={"runtime": r, "version": "1"}) for r in ("podman", "docker")
    )
    assert other_versions(podman, docker) == ["container runtime podman / docker"]
    over = replace_struct(podman, container={"runtime": "podman", "version": "1", "mounts": "/opt/venv"})
    assert other_versions(podman, over) == ["container mounts None / /opt/venv"]


def test_containers_on_another_kernel_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a remote daemon, or of one in a virtual machine: its answer comes, and its loopback is another one."""
    config = campaign_with("i", tmp_path)
    monkeypatch.setattr(identity, "interpreter", lambda engine: [sys.executable])
    monkeypatch.setattr(identity, "image_of", lambda container: image("docker"))
    answer = identity.interpreter_answer(config.engine)
    assert answer["image"] == DIGEST and "boot" not in answer
    elsewhere = identity._PROBE.replace("kernel/random/boot_id", "kernel/random/uuid")
    assert elsewhere != identity._PROBE
    monkeypatch.setattr(identity, "_PROBE", elsewhere)
    with pytest.raises(EngineError, match="docker runs its containers on another kernel than this host's"):
        identity.interpreter_answer(config.engine)


def test_a_record_that_names_another_program_names_nobody(tmp_path: Path) -> None:
    """Whatever a stranger wrote there, no program is run by its name."""
    record_supervisor(tmp_path, os.getpid(), "m", (), "podman")
    found = recorded_supervisor(tmp_path)
    assert found is not None and found.container == "podman"
    document = json.loads((tmp_path / RECORD).read_text())
    (tmp_path / RECORD).write_text(json.dumps({**document, "container": "rm"}))
    assert recorded_supervisor(tmp_path) is None
    assert end_leftovers(tmp_path, grace_s=0.1) == []


# Stands for a runtime: prints what it was asked to run.
PRINTS = f"#!/bin/sh\nexec {sys.executable} -c 'import json, sys; print(json.dumps(sys.argv[1:]))' \"$@\"\n"


def test_a_container_stands_before_the_command_and_in_launch_sh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is expanded or split on the way, neither in the launch nor by hand."""
    podman = tmp_path / "podman"
    podman.write_text(PRINTS)
    podman.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    steps, model = tmp_path / ODD / "steps", tmp_path / ODD
    steps.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    config = campaign_with({"image": "i"}, tmp_path, kind="vllm", model=str(model), model_file=None)
    engine = replace_struct(config.engine, args={}, extra_args=("--max-num-seqs", ODD))
    box = launch("podman", reads=(model,), writes=(steps,), home=tmp_path)
    plain = config.connector("plain")
    made = launch_of(engine, plain, contained=box, steps=steps)
    told = subprocess.run(made.command(), env=made.variables(), capture_output=True, text=True, check=True)
    served = ["--served-model-name", engine.served_model_name, "--host", "127.0.0.1", "--port", "1"]
    command = ["python3", "-m", "vllm_serve", "serve", str(model), *served, "--max-num-seqs", ODD]
    assert json.loads(told.stdout) == [*launch_words(box)[1:], *command]
    (tmp_path / "launch.sh").write_text(made.script(plain))
    folder = f"{tmp_path}/{ODD} of another"
    given = {"CONNECTOR_TAX_FOLDER": folder, "MODEL": ODD, "HOME": str(tmp_path)}
    again = by_hand(tmp_path / "launch.sh", **given)
    assert again.returncode == 0, again.stderr
    words = json.loads(again.stdout)
    assert f"--mount=type=bind,source={folder},target={folder}" in words and "--interactive" not in words
    assert (
        f"--mount=type=bind,source={ODD},target={ODD},ro" in words and words[words.index("serve") + 1] == ODD
    )
    assert not any("c0ffee" in word for word in words) and words[-2:] == ["--max-num-seqs", ODD]
    assert not list(tmp_path.rglob("HERE")) and not (PROJECT_ROOT / "HERE").exists()


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
    engine = replace_struct(
        CAMPAIGN.engine, container=ContainerConfig("i"), env={**CAMPAIGN.engine.env, **env}
    )
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
    engine, plain = (
        replace_struct(CAMPAIGN.engine, container=ContainerConfig("i")),
        CAMPAIGN.connector("plain"),
    )
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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NVIDIA_API_KEY", "planted"),
        ("STORAGE_DSN", "${DB_PASSWORD}"),
        ("PYTHON_INDEX", "s3://${DB_PASSWORD}@h"),
        ("DOCKER_REGISTRY", "https://me:planted@registry"),
    ],
)
def test_a_secret_is_handed_over_by_whatever_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """By its name, what it refers to, or its look: it was in the client's arguments, or in the runtime's database."""
    path = "/opt/sk-learn-env1234567/bin"  # a folder, whatever it looks like
    monkeypatch.setenv("DB_PASSWORD", "planted")
    launch = box(monkeypatch, tmp_path, {**os.environ}, **{name: value, "PATH": path})
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
    engine, plain = (
        replace_struct(CAMPAIGN.engine, container=ContainerConfig("i")),
        CAMPAIGN.connector("plain"),
    )
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "HF_TOKEN": "planted-token-1",
        "LONG": odd,
    }
    names = ("HF_TOKEN", "LONG", "NOT_SET")
    made_for = box(monkeypatch, tmp_path, environment, HF_TOKEN="planted-token-1")
    launch = dataclasses.replace(made_for, names=names, handed=names)
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


def first_process(*command: str, cpus: str = "", **options: Any) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, str(INIT), str(PACKAGE.parent), "1", cpus, *command], **options)


def wait_until_it_runs(init: "subprocess.Popen[bytes]") -> None:
    assert within(30, lambda: psutil.Process(init.pid).children())


def test_what_a_container_runs_ends_with_its_standard_input() -> None:
    with first_process("sleep", "60", stdin=subprocess.PIPE) as init:
        wait_until_it_runs(init)
        assert init.stdin is not None
        init.stdin.close()
        assert init.wait(30) == 128 + signal.SIGTERM


def test_by_hand_there_is_no_standard_input_to_end_with() -> None:
    with first_process("sh", "-c", "sleep 0.4; exit 7", stdin=subprocess.DEVNULL) as init:
        assert init.wait(30) == 7


def test_ctrl_c_ends_a_container_that_was_started_by_hand_and_no_other() -> None:
    with first_process("sleep", "60", stdin=subprocess.DEVNULL) as init:
        wait_until_it_runs(init)
        init.send_signal(signal.SIGINT)
        assert init.wait(30) == 128 + signal.SIGTERM
    with first_process("sleep", "60", stdin=subprocess.PIPE) as init:
        wait_until_it_runs(init)
        init.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert init.poll() is None
        init.terminate()


def test_a_container_stays_on_the_cores_that_it_is_given() -> None:
    ask = "import os; print(sorted(os.sched_getaffinity(0)))"
    mine = min(os.sched_getaffinity(0))
    with first_process(
        sys.executable, "-c", ask, cpus=str(mine), stdout=subprocess.PIPE, stdin=subprocess.PIPE
    ) as init:
        assert init.stdout is not None and init.stdout.read().decode().strip() == f"[{mine}]"
    with first_process("true", cpus="4095", stdin=subprocess.PIPE, stderr=subprocess.PIPE) as init:
        assert init.stderr is not None and b"cores 4095 are not open to this container" in init.stderr.read()
        assert init.wait(5) == 1
