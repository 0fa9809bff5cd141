"""The image that an engine runs in, looked up on this host: by which runtime, and which digest its name stands for now.

What is launched is the digest. A name may be given to another image between two launches; the receipt then says so, and a campaign that was
begun with the first one is refused.
"""

import json
import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache

from connector_tax.base.config.model import ContainerConfig, Runtime
from connector_tax.base.errors import ConfigError, EngineError
from connector_tax.base.opening import printable
from connector_tax.base.secrets import masked

# In the order in which they are looked for: podman's containers are children of whoever starts them, and need no daemon.
RUNTIMES: tuple[Runtime, ...] = ("podman", "docker")
ANSWER_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Image:
    """
    Attributes:
        version: of the runtime; of docker that of its daemon.
        name: as the config has it.
        digest: ``sha256:...``, the image's id.
        user: in the container who this process's user is, as ``--user`` takes it.
        pythonpath: that the image sets; empty where it sets none.
        groups: of this process's user beside the first one, as ``--group-add`` takes them.
    """

    runtime: Runtime
    version: str
    name: str
    digest: str
    user: str
    pythonpath: str = ""
    groups: tuple[int, ...] = ()


def image_of(container: ContainerConfig) -> Image:
    """By the runtime that is named, else by the first that is installed and has it.

    Looked up once in a process, so that what it says of itself is what it launches.

    Raises:
        ConfigError: no such runtime or image is here.
        EngineError: the runtime does not answer.
    """
    refusals: list[ConfigError | EngineError] = []
    for runtime in runtimes_of(container):
        try:
            return _image(runtime, container.image)
        except (ConfigError, EngineError) as error:
            refusals.append(error)
    if len(refusals) == 1:
        raise refusals[0]
    raise ConfigError("\n".join(map(str, refusals)))


def runtimes_of(container: ContainerConfig) -> list[Runtime]:
    """The one that is named, else all that are installed; one at least.

    Raises:
        ConfigError: it is not installed, or none is.
    """
    installed = [runtime for runtime in RUNTIMES if shutil.which(runtime) is not None]
    if container.runtime is not None and container.runtime not in installed:
        raise ConfigError(
            f"engine.container.runtime: {container.runtime}: no such program on PATH. Install it, or name one of {', '.join(RUNTIMES)} that is."
        )
    if not installed:
        raise ConfigError(
            f"engine.container: no container runtime on PATH (looked for {', '.join(RUNTIMES)}). Install one, or leave the section out "
            "and give engine.python an interpreter of this host."
        )
    return installed if container.runtime is None else [container.runtime]


@cache
def _image(runtime: Runtime, name: str) -> Image:
    version, user = _daemon() if runtime == "docker" else _podman()
    found = _ask(runtime, "image", "inspect", "--format", "{{.Id}} {{json .Config.Env}}", "--", name)
    if found.returncode != 0:
        said = _last_line(found.stderr)
        if not any(
            words in said.lower()
            for words in ("no such image", "not known", "unable to inspect", "invalid reference")
        ):
            raise EngineError(f"engine.container: {runtime} image inspect failed: {said}")
        raise ConfigError(
            f"engine.container.image: {printable(name, 300)!r}: {runtime} has no such image here, and none is pulled. Build it, or pull it first: "
            f"{runtime} pull {shlex.quote(name)}"
        )
    identity, _, variables = found.stdout.strip().partition(" ")
    set_to = dict(variable.partition("=")[::2] for variable in json.loads(variables) or ())
    digest = identity.removeprefix("sha256:")
    # Where a user namespace makes this user root, the numbers of other groups are nobody's in there.
    groups = tuple(sorted({*os.getgroups()} - {os.getgid()})) if runtime == "docker" and user != "0:0" else ()
    return Image(runtime, version, name, f"sha256:{digest}", user, set_to.get("PYTHONPATH", ""), groups)


def _podman() -> tuple[str, str]:
    """Version and user: root in the container is root here, and without root whoever started it."""
    return _answer("podman", "version", "--format", "{{.Client.Version}}"), "0:0"


def _daemon() -> tuple[str, str]:
    """The same of docker's daemon, whose root is root of the host unless it runs without root itself."""
    version, _, security = _answer(
        "docker", "info", "--format", "{{.ServerVersion}} {{.SecurityOptions}}"
    ).partition(" ")
    return version, "0:0" if "rootless" in security else f"{os.getuid()}:{os.getgid()}"


def _answer(runtime: Runtime, *arguments: str) -> str:
    found = _ask(runtime, *arguments)
    if found.returncode != 0 or not found.stdout.strip():
        hint = (
            "Is its daemon running, and may this user ask it?"
            if runtime == "docker"
            else "Look what it says by hand."
        )
        raise EngineError(
            f"engine.container: {runtime} {' '.join(arguments[:1])} failed: {_last_line(found.stderr)}. {hint}"
        )
    return found.stdout.strip()


def _ask(runtime: Runtime, *arguments: str) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            [runtime, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ANSWER_WITHIN_S,
        )
    except subprocess.TimeoutExpired as error:
        raise EngineError(
            f"engine.container: {runtime} {arguments[0]} did not answer within {ANSWER_WITHIN_S:g} s."
        ) from error
    except OSError as error:
        raise EngineError(f"engine.container: {runtime} cannot be run ({error}).") from error


def _last_line(text: str) -> str:
    lines = [line for line in masked(text).splitlines() if line.strip()]
    return printable(lines[-1], 500) if lines else "it said nothing"
