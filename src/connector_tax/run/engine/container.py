"""An engine in a container: the words that go before its command.

The command stays the launch scripts' own; these words run it in an image, with this host's loopback and nothing else of the host that it does not need:
the instrument and the model to read, the launch's folder of step records and its store to write. The image is not changed. Variables are
named in arguments and handed over through standard input, so no value of one is in an argument, a receipt or the runtime's own files.
Why so: docs/decisions/0035.
"""

import os
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import connector_tax
from connector_tax.base.config import EngineConfig
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.config.model import Runtime
from connector_tax.base.errors import ConfigError
from connector_tax.base.files import writing_failed
from connector_tax.base.locks import cache_folder
from connector_tax.base.opening import printable
from connector_tax.base.secrets import is_secret_name
from connector_tax.run.engine.container_limits import limit_words, shm_bytes
from connector_tax.run.engine.gpus import ORDER, VISIBLE, Cards
from connector_tax.run.engine.image import Image
from connector_tax.run.engine.supervisor import HANDED

PLUGINS = PROJECT_ROOT / "launch" / "plugins"
PATCHES = PROJECT_ROOT / "patches"
# The first process of every container, and the folder that it imports the supervisor from.
INIT = PLUGINS / "container_init.py"
PACKAGE = Path(connector_tax.__file__).resolve().parent
PREFIX = "connector-tax-"
# Who an engine is by name; by number it is this user.
USER = "connector-tax"
# How much longer than a container everything around it has to end.
LONGER_S = 2.0
# Longer than anybody waits for an answer.
QUESTION_ENDS_AFTER_S = 330
# What cannot stand in a mount, whose parts are separated by commas and may be quoted.
_UNMOUNTABLE = re.compile('[,"\n]')
# Of what an engine inherits: what shapes it, unless it names a place of this host.
_SHAPING = re.compile(r"(VLLM|LMCACHE|MOONCAKE|NIXL|UCX|NCCL|OMP|MKL|CUDA|TORCH|PYTORCH|HF)_\w+", re.ASCII)
_PROXIES = tuple(
    name
    for kind in ("HTTP", "HTTPS", "FTP", "NO", "ALL")
    for name in (f"{kind}_PROXY", f"{kind.lower()}_proxy")
)
# What bash and the runtime's client go by themselves, of whatever is in the environment that variables are handed on from.
_OF_THE_SHELL = r"PATH|HOME|TMPDIR|BASH_ENV|PYTHONHOME|LD_\w+"
_OF_THE_CLIENT = re.compile(rf"{_OF_THE_SHELL}|(XDG|DOCKER|CONTAINERS?|PODMAN|STORAGE)_\w+", re.ASCII)
# They are paths: a folder that looks like a token is none, and without the host's no client would be found.
PATHS = re.compile(_OF_THE_SHELL, re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_PLACE = re.compile(r"_(HOME|ROOT|CACHE|PATH|DIR|DIRECTORY|FILE)$")
# Set by the pipeline or by launch/common.sh for each launch.
_OURS = (
    "AGENTIC_STEP_LOG_PATH",
    "CONNECTOR_TAX_ENGINE_MODEL",
    "CONNECTOR_TAX_ENGINE_SEED",
    "CONNECTOR_TAX_FAULT",
    HANDED,
    "CONNECTOR_TAX_RUN",
    "CONNECTOR_TAX_STEP_FLUSH_S",
    "CONNECTOR_TAX_VIRTUAL_GPU",
    "LAUNCH_SH_OUT",
    "PYTHONPATH",
    VISIBLE,
    ORDER,
)


@dataclass(frozen=True, slots=True)
class Contained:
    """What of one launch the container has to know.

    Attributes:
        python: the engine's interpreter in the image.
        names: of the variables that it is given.
        values: of those among them that the runtime's client would go by itself, so they are told in its command.
        secret: those among them that hold a secret.
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
    secret: frozenset[str] = frozenset()


def grace_s(engine: EngineConfig) -> float:
    """How long an engine that is told to end has. A container's first process has as long as any supervisor, and this side a little longer."""
    return engine.stop_grace_s + (LONGER_S if engine.container is not None else 0)


def launch_words(launch: Contained) -> list[str]:
    """What goes before the engine's command: the runtime's own words, the image, and the container's first process.

    Raises:
        ConfigError: a folder cannot be mounted.
    """
    return [
        *(
            launch.image.runtime,
            "run",
            "--rm",
            "--interactive",
            f"--name={PREFIX}{launch.mark}",
            f"--label={PREFIX}mark={launch.mark}",
        ),
        # The engine listens on this host's loopback, as outside of containers; its sockets in files and its shared memory are its own.
        *("--network=host", "--ipc=private", f"--shm-size={shm_bytes()}", "--pids-limit=-1"),
        *_narrow(launch.image, launch.names),
        *gpu_words(launch.image.runtime, launch.cards),
        *_reading(launch.reads, launch.writes),
        *(_mount(path, writable=True) for path in dict.fromkeys(launch.writes)),
        *(
            f"--env={name}={launch.values[name]}" if name in launch.values else f"--env={name}"
            for name in launch.names
        ),
        f"--env=HOME={launch.home}",
        launch.image.digest,
        *(
            launch.python,
            str(INIT),
            str(PACKAGE.parent),
            f"{launch.grace_s:g}",
            ",".join(map(str, launch.cpus)),
        ),
    ]


def probe_words(image: Image, reads: Iterable[Path]) -> list[str]:
    """The same for a question to the image's interpreter: without a network, variables or a place to write."""
    return [
        image.runtime,
        "run",
        "--rm",
        "--network=none",
        # Of a question that is given up nothing is left, since the client's end is not the container's. docker has no such word.
        *([f"--timeout={QUESTION_ENDS_AFTER_S}"] if image.runtime == "podman" else []),
        *_narrow(image),
        *_reading(reads),
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
        *(
            "--pull=never",
            f"--user={image.user}",
            *(f"--group-add={group}" for group in image.groups),
            # Whatever PODMAN_USERNS, containers.conf or the daemon's userns-remap would have: files are this user's.
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
            else [f"--env={name}=" for name in _PROXIES if name not in given]
        ),
        *limit_words(),
    )


def gpu_words(runtime: Runtime, cards: Cards) -> list[str]:
    """Cards by UUID: indices mean other cards where the runtime counts in another order."""
    uuids = [gpu.uuid for gpu in cards.gpus]
    if not uuids:
        return []
    if runtime == "docker":
        return [f'--gpus="device={",".join(uuids)}"']  # quotes, since docker splits at commas
    return [f"--device=nvidia.com/gpu={uuid}" for uuid in uuids]


def visible_inside(cards: Cards) -> dict[str, str]:
    """CUDA_VISIBLE_DEVICES where only these cards are there: they are counted from 0 in the order of the bus."""
    if not cards.gpus or any(gpu.is_mig for gpu in cards.gpus):
        return dict(cards.environment)
    on_the_bus = sorted(gpu.index for gpu in cards.gpus)
    return {VISIBLE: ",".join(str(on_the_bus.index(gpu.index)) for gpu in cards.gpus), ORDER: "PCI_BUS_ID"}


def passed_names(environment: Mapping[str, str], given: Iterable[str]) -> tuple[str, ...]:
    """Which variables a container gets: what the config sets, what the pipeline sets, and what shapes an engine wherever it is run.

    Args:
        given: names that the config sets.
    """
    inherited = (name for name in environment if _SHAPING.fullmatch(name) and not _PLACE.search(name))
    # podman takes a star for the beginning of many names.
    return tuple(sorted(name for name in {*inherited, *given, *_OURS} if _VARIABLE.fullmatch(name)))


def of_the_client(names: Iterable[str], secret: Container[str] = ()) -> list[str]:
    """Which of ``names`` the shell and the runtime's client on this host go by: they keep the host's values. Those of secrets are never
    among them, since their values would stand in an argument.

    Args:
        secret: those whose values tell of one; names do so by themselves.
    """
    return [
        name
        for name in names
        if _OF_THE_CLIENT.fullmatch(name) and name not in secret and not is_secret_name(name)
    ]


def handed_over(names: Sequence[str], secret: Container[str] = ()) -> list[str]:
    """Which of a container's variables come through its standard input: all that may be secret. In its configuration stay those that its
    first process, or NVIDIA's hook, reads before that.

    Args:
        secret: as above.
    """
    # The last is added to by launch/common.sh.
    kept = {*_OURS, *of_the_client(names, secret), "VLLM_PLUGINS"}
    return [
        name
        for name in names
        if name not in kept
        and (name in secret or is_secret_name(name) or not name.startswith(("PYTHON", "NVIDIA_")))
    ]


def python_path(image: Image, given: Mapping[str, str]) -> str:
    """PYTHONPATH before the launch scripts add to it: the config's, else the image's, with which questions are answered; never this host's.

    Args:
        given: variables that the config sets.
    """
    return given.get("PYTHONPATH", image.pythonpath)


def instrument() -> tuple[Path, ...]:
    """What of this project is mounted into every engine's container."""
    return PLUGINS, PATCHES, PACKAGE


def further(mounts: Iterable[str]) -> tuple[Path, ...]:
    """``engine.container.mounts``, without dots and doubled slashes: a runtime takes those out itself, and refuses one place given twice.

    Raises:
        ConfigError: one of them is not on this host.
    """
    paths = tuple(map(_in_short, mounts))
    for path in paths:
        if not _there(path):
            raise ConfigError(
                f"engine.container.mounts: {path}: no such folder on this host that this user may look at. Make it, or take it out."
            )
    return paths


def model_mounts(folder: Path) -> tuple[Path, ...]:
    """The model's folder and where links in it lead, and nothing beside that; of the hub's cache, whose weights lie elsewhere, the folder of blobs.

    A link that leads nowhere, or where this user may not look, is as good as none.
    """
    blobs = folder.parent.parent / "blobs"
    linked = {
        blobs if place.parent == blobs else place
        for path in folder.iterdir()
        if path.is_symlink() and _there(path)
        for place in _places(path)
    }
    return folder, *sorted(place for place in linked if not place.is_relative_to(folder))


def _places(link: Path) -> Iterator[Path]:
    """What a link names, and what that names in turn, to where it ends: each has to be there under its own path."""
    place, seen = link, set()
    # Where a link to a folder stands before the dots, a place may not be there, or be one that was passed.
    while os.path.islink(place) and place not in seen:  # noqa: PTH114 - as in _there
        seen.add(place)
        place = _in_short(place.parent / place.readlink())
        if _there(place):
            yield place
    yield link.resolve()


def _in_short(path: Path | str) -> Path:
    """An absolute path as a runtime reads it; ``normpath`` leaves two slashes before it."""
    return Path("/" + os.path.normpath(path).lstrip("/"))


def _there(path: Path) -> bool:
    """Whether this user sees it: ``Path.exists`` raises where it may not look."""
    return os.path.exists(path)  # noqa: PTH110


def home_of(image: Image) -> Path:
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


def _reading(paths: Iterable[Path], but: Iterable[Path] = ()) -> list[str]:
    """Each path once, with what is mounted beneath it on this host: a runtime takes that along, writable whatever the folder around it is.

    Args:
        but: mounted otherwise.
    """
    wanted = (place for path in paths for place in (path, *mounted_beneath(path)))
    other = set(but)
    return [_mount(place, writable=False) for place in dict.fromkeys(wanted) if place not in other]


def mounted_beneath(folder: Path) -> list[Path]:
    """Places below ``folder`` at which this host has something mounted."""
    real = folder.resolve()
    mountinfo = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    # Blanks and backslashes are written as octal numbers.
    points = {
        Path(re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), line.split(" ")[4]))
        for line in mountinfo.splitlines()
    }
    beneath = sorted(point for point in points if point != real and point.is_relative_to(real))
    return [folder / point.relative_to(real) for point in beneath if _there(point)]


def _mount(path: Path, *, writable: bool) -> str:
    if _UNMOUNTABLE.search(str(path)):
        raise ConfigError(
            f"{str(path)!r} cannot be mounted into a container: a comma, a quote or a line break in a path means something else there. "
            "Rename the folder, or reach it by a link without one."
        )
    return f"--mount=type=bind,source={path},target={path}" + ("" if writable else ",ro")
