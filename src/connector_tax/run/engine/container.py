"""Build the container command that precedes an engine's command.

The container shares this host's loopback and sees only what it needs: the instrument and the model
(read-only), the launch's folder of step records and its store (writable). The image is not changed. Arguments
name environment variables and standard input carries their values, so no value appears in an argument, a
receipt or the runtime's files. Reasons: docs/decisions/0035.
"""

import json
import os
import re
import resource
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import connector_tax
from connector_tax.base.config import EngineConfig
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.config.model import ContainerConfig, Runtime
from connector_tax.base.errors import ConfigError, EngineError
from connector_tax.base.files import printable
from connector_tax.base.locks import cache_folder
from connector_tax.base.records.connector import ConnectorSpec
from connector_tax.base.secrets import REFERENCE, is_secret, masked
from connector_tax.run.engine.command import (
    SHAPING,
    engine_python,
    given_environment,
    in_short,
    model_inside,
    model_mounts,
)
from connector_tax.run.engine.gpus import ORDER, VISIBLE, Cards, gpu_words
from connector_tax.run.engine.store import folder_in
from connector_tax.run.engine.supervisor import HANDED

# In search order. Podman containers are children of their caller and need no daemon.
RUNTIMES: tuple[Runtime, ...] = ("podman", "docker")
ANSWER_WITHIN_S = 60.0
PLUGINS, PATCHES = PROJECT_ROOT / "launch" / "plugins", PROJECT_ROOT / "patches"
PACKAGE = Path(connector_tax.__file__).resolve().parent
# The first process of every container, and the parts of this project that are mounted.
INIT, INSTRUMENT = PLUGINS / "container_init.py", (PLUGINS, PATCHES, PACKAGE)
PREFIX = "connector-tax-"
# Inherited variables that name a path of this host are not passed on.
_PATH_VARIABLE = re.compile(r"_(HOME|ROOT|CACHE|PATH|DIR|DIRECTORY|FILE)$")
# The supervisor and the runtime's client read these, and keep this host's values.
_CLIENT_VARIABLE = re.compile(r"PATH|HOME|TMPDIR|PYTHONHOME|(LD|XDG|DOCKER|CONTAINERS?|PODMAN|STORAGE)_\w+")
# Set by the pipeline for each launch.
_PIPELINE_VARIABLES = {
    *(HANDED, "AGENTIC_STEP_LOG_PATH", "PYTHONPATH", VISIBLE, ORDER),
    *("CONNECTOR_TAX_ENGINE_MODEL", "CONNECTOR_TAX_ENGINE_SEED", "CONNECTOR_TAX_FAULT", "CONNECTOR_TAX_RUN"),
    *("CONNECTOR_TAX_STEP_FLUSH_S", "CONNECTOR_TAX_VIRTUAL_GPU"),
}
# Read before standard input, by the container's first process or NVIDIA's hook. A virtual
# GPU extends VLLM_PLUGINS.
_READ_EARLY = re.compile(r"(PYTHON|NVIDIA_)\w*|VLLM_PLUGINS")


@dataclass(frozen=True, slots=True)
class Image:
    """An image: its name, the digest behind it, our user inside it, and the PYTHONPATH that it sets."""

    runtime: Runtime
    version: str
    name: str
    digest: str
    user: str
    pythonpath: str = ""
    groups: tuple[int, ...] = ()


@cache
def image_of(container: ContainerConfig) -> Image:
    """Return the image from the configured runtime, or from the first installed one; cached per process.

    Raises:
        ConfigError: the runtime or the image is not on this host.
        EngineError: the runtime does not answer.
    """
    installed_runtimes = (runtime for runtime in RUNTIMES if shutil.which(runtime))
    runtime = next(installed_runtimes, RUNTIMES[0]) if container.runtime is None else container.runtime
    name = container.image
    if shutil.which(runtime) is None:
        raise ConfigError(
            f"engine.container.runtime: {runtime}: no such program on PATH. Install it, name one of"
            f" {', '.join(RUNTIMES)} that is, or leave engine.container out and give engine.python an"
            " interpreter of this host."
        )
    version_query = ("version", "--format", "{{.Client.Version}}")
    if runtime == "docker":
        version_query = ("info", "--format", "{{.ServerVersion}} {{.SecurityOptions}}")
    version, _, security = _answer(runtime, *version_query).partition(" ")
    # Root inside podman, and inside rootless docker, is the user who started it.
    user = "0:0" if runtime == "podman" or "rootless" in security else f"{os.getuid()}:{os.getgid()}"
    # Where a user namespace maps this user to root, other group numbers have no meaning inside.
    groups = tuple(sorted({*os.getgroups()} - {os.getgid()})) if user != "0:0" else ()
    try:
        inspected = _answer(
            runtime, "image", "inspect", "--format", "{{.Id}} {{json .Config.Env}}", "--", name
        )
    except EngineError as error:
        raise ConfigError(
            f"engine.container.image: {printable(name, 300)!r}: {runtime} has no such image here, and none is"
            f" pulled ({error}). Pull it first: {runtime} pull {shlex.quote(name)}; or name the"
            " engine.container.runtime that has it."
        ) from error
    identity, _, variables = inspected.partition(" ")
    image_variables = dict(variable.partition("=")[::2] for variable in json.loads(variables) or ())
    identity = "sha256:" + identity.removeprefix("sha256:")
    return Image(runtime, version, name, identity, user, image_variables.get("PYTHONPATH", ""), groups)


def _answer(runtime: Runtime, *arguments: str) -> str:
    try:
        process = subprocess.run(
            [runtime, *arguments], capture_output=True, text=True, timeout=ANSWER_WITHIN_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"engine.container: {runtime} {arguments[0]} gave no answer: {error}.") from error
    if process.returncode != 0 or not process.stdout.strip():
        last_line = masked(process.stderr).strip().rpartition("\n")[2] or "it said nothing"
        raise EngineError(
            f"engine.container: {runtime} {arguments[0]} failed: {printable(last_line, 500)}. Does it run,"
            " and may this user ask it?"
        )
    return process.stdout.strip()


@dataclass(frozen=True, slots=True)
class Contained:
    """What the container needs to know about one launch.

    Attributes:
        names, handed: its variables, and those sent through standard input, which
            include every possible secret.
        values: variables that the runtime's client would read itself, so its command carries the values.
        reads, writes: folders of this host that are mounted under their own paths.
    """

    image: Image
    python: str
    mark: str
    names: tuple[str, ...]
    reads: tuple[Path, ...]
    writes: tuple[Path, ...]
    home: Path
    cards: Cards
    cpus: tuple[int, ...]
    grace_s: float
    values: Mapping[str, str] = field(default_factory=dict)
    handed: tuple[str, ...] = ()


def contained(
    engine: EngineConfig,
    connector: ConnectorSpec,
    image: Image,
    environment: dict[str, str],
    *,
    mark: str,
    cards: Cards,
    cpus: tuple[int, ...],
    writes: tuple[Path, ...],
) -> Contained:
    """Return the engine's container, and turn ``environment`` into that of its client.

    Raises:
        ConfigError: a mount or the model is not on this host.
    """
    assert engine.container is not None
    home = (cache_folder() / "containers" / image.digest.removeprefix("sha256:")[:16]).absolute()
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    store, own_cpus = folder_in(connector), os.sched_getaffinity(0)
    configured, configured_texts = given_environment(engine, connector), {**engine.env, **connector.env}
    # A remaining reference marks a secret: the config reader has replaced the others.
    secret = {
        n
        for n, value in configured.items()
        if is_secret(n, value) or REFERENCE.search(configured_texts.get(n, ""))
    }
    names = passed_names(environment, configured)
    values = {
        n: value for n, value in configured.items() if _CLIENT_VARIABLE.fullmatch(n) and n not in secret
    }
    kept_names = {
        n
        for n in names
        if n in {*_PIPELINE_VARIABLES, *values} or (_READ_EARLY.fullmatch(n) and n not in secret)
    }
    handed_names = tuple(n for n in names if n not in kept_names)
    for name in (*values, "PYTHONPATH"):
        environment.pop(name, None)
        if name in os.environ:
            environment[name] = os.environ[name]
    environment[HANDED] = " ".join(handed_names)
    model = model_mounts(model_inside(engine)) if engine.is_vllm else (PROJECT_ROOT / str(engine.model_file),)
    return Contained(
        image=image,
        python=engine_python(engine),
        mark=mark,
        names=names,
        values=values,
        handed=handed_names,
        reads=(*INSTRUMENT, *model, *_mounts(engine.container.mounts)),
        writes=(*(path.absolute() for path in writes), *([] if store is None else [store]), home),
        home=home,
        cards=cards,
        # Default: this process's own affinity, which a daemon's containers do not inherit.
        cpus=cpus or (() if len(own_cpus) == os.cpu_count() else tuple(sorted(own_cpus))),
        grace_s=engine.stop_grace_s,
    )


def passed_names(environment: Mapping[str, str], given: Iterable[str]) -> tuple[str, ...]:
    """Return the container's variables: from config (``given``), pipeline, and inherited engine settings."""
    inherited = (name for name in environment if SHAPING.fullmatch(name) and not _PATH_VARIABLE.search(name))
    return tuple(sorted({*inherited, *given, *_PIPELINE_VARIABLES}))


def python_path(image: Image, given: Mapping[str, str]) -> str:
    """Return the PYTHONPATH that ``instrument`` extends: the config's, else the image's; not this host's."""
    return given.get("PYTHONPATH", image.pythonpath)


def grace_s(engine: EngineConfig) -> float:
    """Return the seconds that an engine has to end; for a container 2 s more than its first process has."""
    return engine.stop_grace_s + (2.0 if engine.container is not None else 0)


def launch_words(launch: Contained) -> list[str]:
    """Return the words before the engine's command: the runtime's arguments, the image, the first process."""
    assignments = {name: f"={value}" for name, value in launch.values.items()}
    return [
        *(launch.image.runtime, "run", "--rm", "--interactive"),
        *(f"--name={PREFIX}{launch.mark}", f"--label={PREFIX}mark={launch.mark}"),
        # The engine listens on this host's loopback, as without a container. Its shared memory is private;
        # the size is a limit (all that this host has), not a reservation.
        *(
            "--network=host",
            "--ipc=private",
            f"--shm-size={max(2**30, shutil.disk_usage('/dev/shm').total)}",  # nosec B108  # only measured
        ),
        "--pids-limit=-1",
        *_restrictions(launch.image, launch.names),
        *gpu_words(launch.image.runtime, launch.cards),
        *(_mount(path) for path in dict.fromkeys(launch.reads) if path not in launch.writes),
        *(_mount(path, "") for path in dict.fromkeys(launch.writes)),
        *(f"--env={name}{assignments.get(name, '')}" for name in launch.names),
        f"--env=HOME={launch.home}",
        *(launch.image.digest, launch.python, str(INIT), str(PACKAGE.parent)),
        *(f"{launch.grace_s:g}", ",".join(map(str, launch.cpus))),
    ]


def interpreter(engine: EngineConfig) -> list[str]:
    """Return the words before ``-c`` or ``-m`` that run the engine's interpreter, container included."""
    python = engine_python(engine)
    if engine.container is None:
        return [python]
    return [
        *probe_words(image_of(engine.container), (*INSTRUMENT, *_mounts(engine.container.mounts))),
        python,
    ]


def probe_words(image: Image, reads: Iterable[Path]) -> list[str]:
    """Return the container words for a question to the image's interpreter: no network, nothing writable."""
    return [
        *(image.runtime, "run", "--rm", "--network=none"),
        # Longer than any caller waits, so an abandoned question leaves nothing. docker has no such option.
        *(["--timeout=330"] if image.runtime == "podman" else []),
        *_restrictions(image),
        *map(_mount, dict.fromkeys(reads)),
        image.digest,
    ]


def _restrictions(image: Image, given: Iterable[str] = ()) -> Iterator[str]:
    """Yield the arguments that limit a container to this user's rights and bypass the image's entry point.

    The runtime keeps no log, since it would hold secrets that the engine prints.

    Args:
        given: names of variables that already have a value.
    """
    yield from ("--pull=never", f"--user={image.user}", *(f"--group-add={group}" for group in image.groups))
    # Override PODMAN_USERNS, containers.conf and the daemon's userns-remap, so that
    # files belong to this user.
    yield from ("--userns=host", "--cap-drop=ALL", "--security-opt=no-new-privileges")
    yield from ("--security-opt=label=disable", "--entrypoint=", "--workdir=/")
    yield from ("--log-driver=none", "--no-healthcheck")
    # torch before 2.13 calls Python's getpass on import, which fails for a user who is not in /etc/passwd.
    preset = {"USER": "connector-tax"}
    # podman passes on the environment's proxy and docker the one of its user's config. A proxy
    # address may hold a password.
    if image.runtime == "docker":
        proxies = [f"{scheme}_PROXY" for scheme in ("HTTP", "HTTPS", "FTP", "NO", "ALL")]
        preset |= {name: "" for proxy in proxies for name in (proxy, proxy.lower())}
    yield from (f"--env={name}={value}" for name, value in preset.items() if name not in given)
    if image.runtime == "podman":
        yield "--http-proxy=false"
    # Use this process's limits: runtimes set others, which they may not be allowed to.
    for name in ("nofile", "nproc", "memlock"):
        limits = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))
        if name == "nproc":  # podman lowers its own to the kernel's pid_max; -1 is unlimited
            pid_max = int(Path("/proc/sys/kernel/pid_max").read_text())
            limits = min(limits[0] % 2**64, pid_max), min(limits[1] % 2**64, pid_max)
        yield f"--ulimit={name}={limits[0]}:{limits[1]}"


def _mounts(mounts: Iterable[str]) -> Iterator[Path]:
    """Yield ``engine.container.mounts`` as a runtime reads them; it refuses duplicates.

    Raises:
        ConfigError: a folder is not on this host.
    """
    for path in map(in_short, mounts):
        if not os.path.exists(path):  # noqa: PTH110 - Path.exists raises where this user may not look
            raise ConfigError(
                f"engine.container.mounts: {path}: no such folder on this host that this user may look at."
                " Make it, or take it out."
            )
        yield path


def _mount(path: Path, options: str = ",ro") -> str:
    if re.search('[,"\n]', str(path)):
        raise ConfigError(
            f"{str(path)!r} cannot be mounted into a container: a comma, a quote or a line break in a path"
            " means something else there. Rename the folder, or reach it by a link without one."
        )
    return f"--mount=type=bind,source={path},target={path}{options}"
