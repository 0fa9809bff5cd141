"""An engine in a container: the words that go before its command.

They run it in an image, with this host's loopback and nothing else of the host that it does not need: the instrument and the model to read, the launch's
folder of step records and its store to write. The image is not changed. Variables are named in arguments and handed over through standard input, so no
value of one is in an argument, a receipt or the runtime's own files. Why so: docs/decisions/0035.
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
from connector_tax.base.files import printable, writing_failed
from connector_tax.base.locks import cache_folder
from connector_tax.base.records.connector import STORE, ConnectorSpec
from connector_tax.base.secrets import REFERENCE, format_in, is_secret_name, masked
from connector_tax.run.engine.command import engine_python, given_environment, model_folder
from connector_tax.run.engine.gpus import ORDER, VISIBLE, Cards
from connector_tax.run.engine.store import folder_in
from connector_tax.run.engine.supervisor import HANDED

# The image that an engine runs in, looked up on this host: by which runtime, and which digest its name stands for now.

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


PLUGINS = PROJECT_ROOT / "launch" / "plugins"
PATCHES = PROJECT_ROOT / "patches"
# The first process of every container, and the folder that it imports the supervisor from.
INIT = PLUGINS / "container_init.py"
PACKAGE = Path(connector_tax.__file__).resolve().parent
# What of this project is mounted into every engine's container.
INSTRUMENT = (PLUGINS, PATCHES, PACKAGE)
PREFIX = "connector-tax-"
# Who an engine is by name; by number it is this user.
USER = "connector-tax"
# How much longer than a container everything around it has to end.
LONGER_S = 2.0
# Longer than anybody waits for an answer.
QUESTION_ENDS_AFTER_S = 330
LEAST_SHM_BYTES = 2**30
# What cannot stand in a mount, whose parts are separated by commas and may be quoted.
_UNMOUNTABLE = re.compile('[,"\n]')
# Of what an engine inherits: what shapes it, unless it names a place of this host. podman takes a star for the beginning of many names.
_SHAPING = re.compile(r"(VLLM|LMCACHE|MOONCAKE|NIXL|UCX|NCCL|OMP|MKL|CUDA|TORCH|PYTORCH|HF)_\w+", re.ASCII)
_PLACE = re.compile(r"_(HOME|ROOT|CACHE|PATH|DIR|DIRECTORY|FILE)$")
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_PROXIES = [f"{kind}_PROXY" for kind in ("HTTP", "HTTPS", "FTP", "NO", "ALL")]
# What the supervisor and the runtime's client go by, and keep from this host. The first are paths: a folder that looks like a token is none.
_PATHS = re.compile(r"PATH|HOME|TMPDIR|PYTHONHOME|LD_\w+", re.ASCII)
_OF_THE_CLIENT = re.compile(rf"{_PATHS.pattern}|(XDG|DOCKER|CONTAINERS?|PODMAN|STORAGE)_\w+", re.ASCII)
# Set by the pipeline for each launch.
_OURS = {
    *(HANDED, "AGENTIC_STEP_LOG_PATH", "PYTHONPATH", VISIBLE, ORDER),
    *("CONNECTOR_TAX_ENGINE_MODEL", "CONNECTOR_TAX_ENGINE_SEED", "CONNECTOR_TAX_FAULT", "CONNECTOR_TAX_RUN"),
    *("CONNECTOR_TAX_STEP_FLUSH_S", "CONNECTOR_TAX_VIRTUAL_GPU"),
}
# In a container's configuration, since its first process, or NVIDIA's hook, reads them before standard input; the last is added to for a virtual GPU.
_KEPT = re.compile(r"(PYTHON|NVIDIA_)\w*|VLLM_PLUGINS")


@dataclass(frozen=True, slots=True)
class Contained:
    """What of one launch the container has to know.

    Attributes:
        python: the engine's interpreter in the image.
        names: of the variables that it is given.
        values: of those among them that the runtime's client would go by itself, so they are told in its command.
        handed: those among them that come through its standard input: all that may be secret.
        reads, writes: folders of this host that it sees, under their own paths.
        home: among ``writes``; what engines cache of compiled code stays there from launch to launch.
        cpus: that it stays on; empty for any.
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
    environment: Mapping[str, str],
    *,
    mark: str,
    cards: Cards,
    cpus: tuple[int, ...],
    writes: tuple[Path, ...],
) -> Contained:
    """
    Args:
        connector: with its store's folder in place.
        environment: the launch's, of which the container gets a part.
        cpus: that the engine stays on; empty: those that this process may use, which a daemon's containers know nothing of.
        writes: where step records and a virtual GPU's clock go.

    Raises:
        ConfigError: a folder of ``engine.container.mounts`` or the model is not on this host.
        ArtifactError: there is no room for a home folder.
    """
    assert engine.container is not None
    home, store, own = _home(image), folder_in(connector), os.sched_getaffinity(0)
    given = given_environment(engine, connector)
    secret = _secret(given, {**engine.env, **connector.env})
    names = passed_names(environment, given)
    values = {n: value for n, value in given.items() if _OF_THE_CLIENT.fullmatch(n) and n not in secret}
    model = model_mounts(model_inside(engine)) if engine.is_vllm else (PROJECT_ROOT / str(engine.model_file),)
    return Contained(
        image=image,
        python=engine_python(engine),
        mark=mark,
        names=names,
        values=values,
        handed=tuple(
            name
            for name in names
            if name not in {*_OURS, *values} and (name in secret or not _KEPT.fullmatch(name))
        ),
        reads=(*INSTRUMENT, *model, *_mounts(engine.container.mounts)),
        writes=(*(path.absolute() for path in writes), *([] if store is None else [store]), home),
        home=home,
        cards=cards,
        cpus=cpus or (() if len(own) == os.cpu_count() else tuple(sorted(own))),
        grace_s=engine.stop_grace_s,
    )


def _secret(given: Mapping[str, str], configured: Mapping[str, str]) -> frozenset[str]:
    """Names of variables that hold a secret, by their names, their values, or what they refer to.

    Args:
        given: with every value in place.
        configured: the same where a secret is still a reference to another variable: others were put in when the config was read.
    """
    return frozenset(
        name
        for name, value in given.items()
        if is_secret_name(name)
        or REFERENCE.search(configured.get(name, "").replace(STORE, ""))
        or ((format_in(value) or masked(value) != value) and not _PATHS.fullmatch(name))
    )


def passed_names(environment: Mapping[str, str], given: Iterable[str]) -> tuple[str, ...]:
    """Which variables a container gets: what the config sets, what the pipeline sets, and what shapes an engine wherever it is run.

    Args:
        given: names that the config sets.
    """
    inherited = (name for name in environment if _SHAPING.fullmatch(name) and not _PLACE.search(name))
    return tuple(sorted(name for name in {*inherited, *given, *_OURS} if _VARIABLE.fullmatch(name)))


def leave_to_the_client(environment: dict[str, str], values: Iterable[str]) -> None:
    """Put back in a launch's environment what the supervisor and the runtime's client would go by: PATH, TMPDIR and the like.

    Args:
        values: names of those that the config sets for the engine.
    """
    for name in (*values, "PYTHONPATH"):
        environment.pop(name, None)
        if name in os.environ:
            environment[name] = os.environ[name]


def python_path(image: Image, given: Mapping[str, str]) -> str:
    """PYTHONPATH before ``instrument`` adds to it: the config's, else the image's, with which questions are answered; never this host's.

    Args:
        given: variables that the config sets.
    """
    return given.get("PYTHONPATH", image.pythonpath)


def grace_s(engine: EngineConfig) -> float:
    """How long an engine that is told to end has. A container's first process has as long as any supervisor, and this side a little longer."""
    return engine.stop_grace_s + (LONGER_S if engine.container is not None else 0)


def launch_words(launch: Contained) -> list[str]:
    """What goes before the engine's command: the runtime's own words, the image, and the container's first process.

    Raises:
        ConfigError: a folder cannot be mounted.
    """
    writes = [_mount(path, "") for path in dict.fromkeys(launch.writes)]
    reads = [_mount(path) for path in dict.fromkeys(launch.reads) if path not in launch.writes]
    told = {name: f"={value}" for name, value in launch.values.items()}
    return [
        *(launch.image.runtime, "run", "--rm", "--interactive"),
        *(f"--name={PREFIX}{launch.mark}", f"--label={PREFIX}mark={launch.mark}"),
        # The engine listens on this host's loopback, as outside of containers; its sockets in files and its shared memory are its own.
        *("--network=host", "--ipc=private", f"--shm-size={_shm_bytes()}", "--pids-limit=-1"),
        *_narrow(launch.image, launch.names),
        *gpu_words(launch.image.runtime, launch.cards),
        *reads,
        *writes,
        *(f"--env={name}{told.get(name, '')}" for name in launch.names),
        f"--env=HOME={launch.home}",
        *(launch.image.digest, launch.python, str(INIT), str(PACKAGE.parent)),
        *(f"{launch.grace_s:g}", ",".join(map(str, launch.cpus))),
    ]


def interpreter(engine: EngineConfig) -> list[str]:
    """What to put before ``-c`` or ``-m`` to ask the engine's interpreter something; in a container, one that ends with the answer.

    Raises:
        ConfigError: as ``engine_python``, or there is no such image or no such folder to mount.
        EngineError: the container runtime does not answer.
    """
    python = engine_python(engine)
    if engine.container is None:
        return [python]
    mounts = (*INSTRUMENT, *_mounts(engine.container.mounts))
    return [*probe_words(image_of(engine.container), mounts), python]


def probe_words(image: Image, reads: Iterable[Path]) -> list[str]:
    """As ``launch_words``, for a question to the image's interpreter: without a network, variables or a place to write."""
    return [
        *(image.runtime, "run", "--rm", "--network=none"),
        # Of a question that is given up nothing is left, since the client's end is not the container's. docker has no such word.
        *([f"--timeout={QUESTION_ENDS_AFTER_S}"] if image.runtime == "podman" else []),
        *_narrow(image),
        *map(_mount, dict.fromkeys(reads)),
        image.digest,
    ]


def _narrow(image: Image, names: Iterable[str] = ()) -> tuple[str, ...]:
    """This user, without any right beyond what that user has; and the command is the engine's, whatever the image would start.

    No log of the runtime's own: it would keep what an engine prints of its secrets.

    Args:
        names: of variables that are given a value.
    """
    given = set(names)
    return (
        *("--pull=never", f"--user={image.user}", *(f"--group-add={group}" for group in image.groups)),
        # Whatever PODMAN_USERNS, containers.conf or the daemon's userns-remap would have: files are this user's.
        *(
            "--userns=host",
            "--cap-drop=ALL",
            "--security-opt=no-new-privileges",
            "--security-opt=label=disable",
        ),
        *("--entrypoint=", "--workdir=/", "--log-driver=none", "--no-healthcheck"),
        # Python's getpass, which torch before 2.13 asks when it is imported, fails of a user who is not in the image's /etc/passwd.
        *([] if "USER" in given else [f"--env=USER={USER}"]),
        # podman hands on a proxy of the environment and docker the one in its user's config; its address may hold a password.
        *(
            ["--http-proxy=false"]
            if image.runtime == "podman"
            else [f"--env={n}=" for name in _PROXIES for n in (name, name.lower()) if n not in given]
        ),
        *map(_limit, ("nofile", "nproc", "memlock")),
    )


def _shm_bytes() -> int:
    """As much as this host's own, which is a limit and no reservation."""
    try:
        return max(LEAST_SHM_BYTES, shutil.disk_usage("/dev/shm").total)  # nosec B108  # only its size is asked
    except OSError:
        return LEAST_SHM_BYTES


def _limit(name: str) -> str:
    """A limit as this process has it: runtimes give others, and may not be allowed to."""
    limits = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))
    if name == "nproc":  # podman lowers its own to as many as the kernel can number; -1 is none
        most = int(Path("/proc/sys/kernel/pid_max").read_text())
        limits = min(limits[0] % 2**64, most), min(limits[1] % 2**64, most)
    return f"--ulimit={name}={limits[0]}:{limits[1]}"


def gpu_words(runtime: Runtime, cards: Cards) -> list[str]:
    """Cards by UUID: indices mean other cards where the runtime counts in another order."""
    uuids = [gpu.uuid for gpu in cards.gpus]
    if uuids and runtime == "docker":
        return [f'--gpus="device={",".join(uuids)}"']  # quotes, since docker splits at commas
    return [f"--device=nvidia.com/gpu={uuid}" for uuid in uuids]


def model_inside(engine: EngineConfig) -> Path:
    """The model's folder itself, also of one in the hub's cache, under the path that is mounted.

    Raises:
        ConfigError: it is not on this host.
    """
    folder = model_folder(engine)
    if folder is None:
        refuse_a_model_elsewhere(engine, f"model {engine.model} is not on this host (no config.json)")
    assert folder is not None
    return folder.resolve()


def refuse_a_model_elsewhere(engine: EngineConfig, missing: str) -> None:
    """Where an engine of this host would have its model downloaded first.

    Raises:
        ConfigError: it runs in a container.
    """
    if engine.container is not None:
        raise ConfigError(
            f"engine.model: {missing}. An engine in a container downloads nothing: bring the model there first, for instance by "
            f"hf download {printable(engine.model, 200)}, or give a model directory."
        )


def model_mounts(folder: Path) -> tuple[Path, ...]:
    """The model's folder, what links in it name and where these end, and nothing beside that; of the hub's cache, whose weights lie elsewhere, the folder of blobs.

    A link that leads nowhere, or where this user may not look, is as good as none.
    """
    blobs = folder.parent.parent / "blobs"
    linked = {
        blobs if place.parent == blobs else place
        for path in folder.iterdir()
        if path.is_symlink() and os.path.exists(path)  # noqa: PTH110 - as in _mounts
        for place in (_in_short(folder / path.readlink()), path.resolve())
    }
    return folder, *sorted(place for place in linked if not place.is_relative_to(folder))


def _mounts(mounts: Iterable[str]) -> Iterator[Path]:
    """``engine.container.mounts``, without dots and doubled slashes: a runtime takes those out itself, and refuses one place given twice.

    Raises:
        ConfigError: one of them is not on this host.
    """
    for path in map(_in_short, mounts):
        if not os.path.exists(path):  # noqa: PTH110 - Path.exists raises where this user may not look
            raise ConfigError(
                f"engine.container.mounts: {path}: no such folder on this host that this user may look at. Make it, or take it out."
            )
        yield path


def _in_short(path: Path | str) -> Path:
    """An absolute path as a runtime reads it; ``normpath`` leaves two slashes before it."""
    return Path("/" + os.path.normpath(path).lstrip("/"))


def _home(image: Image) -> Path:
    """An own home folder for engines of that image.

    Raises:
        ArtifactError: it cannot be made.
    """
    home = (cache_folder() / "containers" / image.digest.removeprefix("sha256:")[:16]).absolute()
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise writing_failed(home, error) from error
    return home


def _mount(path: Path, how: str = ",ro") -> str:
    if _UNMOUNTABLE.search(str(path)):
        raise ConfigError(
            f"{str(path)!r} cannot be mounted into a container: a comma, a quote or a line break in a path means something else there. "
            "Rename the folder, or reach it by a link without one."
        )
    return f"--mount=type=bind,source={path},target={path}{how}"
