"""Identifies what is measured: versions, cards, host; and writes ``env.txt`` with secrets blanked."""

import json
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import psutil
from msgspec import UNSET, UnsetType

from connector_tax.base.config import EngineConfig
from connector_tax.base.documents.identity import IMAGE, EngineIdentity, versions_in
from connector_tax.base.errors import EngineError
from connector_tax.base.files import printable
from connector_tax.base.records.bounds import Fact
from connector_tax.base.records.connector import ConnectorSpec
from connector_tax.base.secrets import MASKED, excerpt, is_secret
from connector_tax.run.engine.command import SHAPING, engine_environment, given_environment
from connector_tax.run.engine.container import image_of, interpreter, passed_names, python_path
from connector_tax.run.engine.gpus import Cards, driver_version
from connector_tax.run.engine.virtual_gpu import gpu_identity

# Runs in the engine's interpreter, which need not have this project's packages. vLLM's version comes from
# the package's own file first, since it may be a checkout. Released wheels name no commit; the files listed
# in RECORD distinguish them.
_PROBE = """
import hashlib, importlib.metadata as m, importlib.util as u, json, pathlib, platform, re, sys
def folder_of(name):
    spec = u.find_spec(name)
    places = spec and spec.submodule_search_locations
    return pathlib.Path(places[0]) if places else None
out = {"python": platform.python_version(), "vllm_git_sha": None}
folder = folder_of("vllm")
if folder:
    for name in ("_version.py", "version.py"):
        if (folder / name).exists():
            text = (folder / name).read_text()
            found = re.search(r"^__version__ = version = ['\\"]([^'\\"]+)", text, re.M)
            sha = re.search(r"commit_id = ['\\"]g?([0-9a-f]{7,40})", text)
            if found: out["vllm"] = found.group(1)
            if sha: out["vllm_git_sha"] = sha.group(1)
# torch.version.cuda, without the seconds that importing torch takes.
file = (folder_of("torch") or pathlib.Path("/nowhere")) / "version.py"
cuda = re.search(r"^cuda\\b[^=]*= *['\\"]([0-9.]+)['\\"]", file.read_text(), re.M) if file.exists() else None
out["cuda"] = cuda.group(1) if cuda else None
boot = pathlib.Path("/proc/sys/kernel/random/boot_id")
out["boot"] = boot.read_text().strip() if boot.exists() else None
# Of one that is there twice, the one that is imported.
found = [d for d in m.distributions() if d.metadata["Name"]]
dists = list({re.sub("[-_.]+", "-", d.metadata["Name"]).lower(): d for d in reversed(found)}.values())
out["packages"] = sorted(f"{d.metadata['Name']}=={d.version}" for d in dists)
if not out["vllm_git_sha"]:
    own = (d for d in dists if d.metadata["Name"].startswith("vllm"))
    listed = (line for d in own for line in (d.read_text("RECORD") or "").splitlines())
    # Without what the installer adds: byte code, scripts and its own notes.
    record = sorted(line for line in listed if line.startswith("vllm/") and "sha256=" in line)
    if record: out["vllm_record_sha256"] = hashlib.sha256("\\n".join(record).encode()).hexdigest()
print("\\n" + sys.argv[1] + json.dumps(out))
"""
# Starts the answer's line, since an interpreter may print a banner.
_ANSWER = "connector-tax-identity:"
ANSWER_WITHIN_S = 120
# Further variables that can change a measurement; env.txt holds no others.
_RELEVANT = re.compile(SHAPING.pattern + r"|(CONNECTOR_TAX|AGENTIC|LD)_\w*|PYTHONPATH", re.ASCII)


def interpreter_answer(engine: EngineConfig) -> dict[str, Any]:
    """Return versions by package, ``packages``, ``cuda`` and a container's image digest.

    Raises:
        ConfigError: the interpreter or the image does not exist.
        EngineError: the interpreter fails or does not answer, or its container runs on another kernel.
    """
    command = interpreter(engine)
    python = command[-1]
    if engine.container is not None:
        python += f" in image {printable(engine.container.image, 300)}"
    try:
        process = subprocess.run(
            [*command, "-c", _PROBE, _ANSWER], capture_output=True, text=True, timeout=ANSWER_WITHIN_S
        )
    except subprocess.TimeoutExpired as error:
        raise EngineError(
            f"{python} did not say within {ANSWER_WITHIN_S} s which versions it has."
        ) from error
    if process.returncode != 0:
        raise EngineError(f"{python} does not run: {process.stderr.strip().splitlines()[-1:]}")
    answer_lines = [line for line in process.stdout.splitlines() if line.startswith(_ANSWER)]
    if not answer_lines:
        raise EngineError(
            f"{python} ran without saying which versions it has: is it a Python interpreter? It printed"
            f" {excerpt(process.stdout, 200)!r}"
        )
    answer: dict[str, Any] = json.loads(answer_lines[-1].removeprefix(_ANSWER))
    answer = {**versions_in(answer["packages"]), **answer}
    boot = answer.pop("boot", None)
    if engine.container is not None:
        image = image_of(engine.container)
        if boot != Path("/proc/sys/kernel/random/boot_id").read_text().strip():
            raise EngineError(
                f"engine.container: {image.runtime} runs its containers on another kernel than this host's (a"
                " remote daemon, or one in a virtual machine). Their loopback and processes cannot be seen"
                f" from here. Run the pipeline there, or point {image.runtime} at this host."
            )
        answer[IMAGE] = image.digest
    return answer


def engine_identity(engine: EngineConfig, cards: Cards, *, with_device: bool = True) -> EngineIdentity:
    """Return the versions of engine and connectors, the cards and the host; equal for comparable cells.

    Args:
        with_device: include a virtual GPU's parameters, which need the model on this host.

    Raises:
        ConfigError: a virtual GPU's step time cannot be computed.
        EngineError: the engine's interpreter fails or does not answer.
    """
    versions = interpreter_answer(engine)
    packages, cuda = versions.pop("packages"), versions.pop("cuda")
    if engine.kind == "emulator":
        image = {IMAGE: versions[IMAGE]} if IMAGE in versions else {}
        versions = {"python": versions["python"], "emulator": True, **image}
        packages, cuda = [], None
    return EngineIdentity(
        kind=engine.kind,
        versions=versions,
        packages=tuple(packages),
        cuda=cuda,
        driver=driver_version() if cards.gpus else UNSET,
        gpu=tuple(str(gpu) for gpu in cards.gpus),
        container=_container(engine),
        virtual_gpu=gpu_identity(engine) or UNSET if with_device else UNSET,
        host={
            "kernel": platform.release(),
            "cpu": _cpu_model(),
            "cores": os.cpu_count(),
            "memory_mib": psutil.virtual_memory().total // 2**20,
        },
    )


def _container(engine: EngineConfig) -> dict[str, Fact] | UnsetType:
    if engine.container is None:
        return UNSET
    image = image_of(engine.container)
    mounts = {"mounts": ", ".join(sorted(engine.container.mounts))} if engine.container.mounts else {}
    return {"runtime": image.runtime, "version": image.version, "image": image.name, **mounts}


def env_text(engine: EngineConfig, connector: ConnectorSpec, identity: EngineIdentity, cards: Cards) -> str:
    """Return ``env.txt``: identity, relevant environment variables, the engine's installed packages."""
    environment = engine_environment(engine, connector, cards)
    if engine.container is not None:
        configured = given_environment(engine, connector)
        environment["PYTHONPATH"] = python_path(image_of(engine.container), configured)
        names_inside = passed_names(environment, configured)
        environment = {name: value for name, value in environment.items() if name in names_inside}
    identity_fields = msgspec.to_builtins(msgspec.structs.replace(identity, packages=UNSET))
    lines = ["# identity", json.dumps(identity_fields, indent=2)]
    lines += ["", "# environment of the engine"]
    lines += [
        f"{k}={MASKED if is_secret(k, v) else v}"
        for k, v in sorted(environment.items())
        if _RELEVANT.fullmatch(k)
    ]
    lines += ["", "# packages of the engine's interpreter", *(identity.packages or ())]
    return "\n".join(lines) + "\n"


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as handle:
            return next(line.split(":", 1)[1].strip() for line in handle if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()
