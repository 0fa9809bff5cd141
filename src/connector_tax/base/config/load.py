"""YAML files to a frozen ``CampaignConfig``; checks across keys are here, the others in the types."""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import asdict, replace

from connector_tax.base.config.checked import PROJECT_ROOT, checked, leaves, meant, read_yaml
from connector_tax.base.config.gpu import UTILIZATION, virtual_gpu
from connector_tax.base.config.model import (
    COUNTED,
    CampaignConfig,
    CampaignYaml,
    ContainerConfig,
    EngineConfig,
    EngineYaml,
    PhaseBPrimeConfig,
    PhaseCConfig,
    SessionFile,
)
from connector_tax.base.config.reserved import check_engine, check_launch
from connector_tax.base.config.secrets import put_in, refuse_inline, without_harmless_references
from connector_tax.base.errors import ArtifactError, ConfigError
from connector_tax.base.files import sha256_of, shown
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.cell import Shape
from connector_tax.base.records.connector import MATCHED, STORE, ConnectorEntry, ConnectorId, ConnectorSpec
from connector_tax.base.records.sessions import read_sessions
from connector_tax.base.secrets import know_references
from connector_tax.base.units import token_count

# vLLM's default on GPUs, unless engine.args sets it.
BLOCK_SIZE = 16
# Never listed, but a campaign may name them. Written so that imports.py does not find it, as in gpu.py.
TEST_CONNECTORS = PROJECT_ROOT.joinpath("config", "test_connectors.yaml")
# Settings for a KV folder on disk. If launches shared one, each would hit the KV of earlier launches.
STORE_KEYS = ("shared_storage_path", "LMCACHE_LOCAL_DISK", "lmcache.local_disk")


class KvTransferConfig(msgspec.Struct):
    """The required part of vLLM's mapping; the rest is the connector's."""

    kv_connector: str
    kv_role: Literal["kv_producer", "kv_consumer", "kv_both"]
    kv_connector_extra_config: "_Extra | None" = None


class _Extra(msgspec.Struct):
    connectors: "tuple[KvTransferConfig, ...]" = ()


class _KnownPart(msgspec.Struct):
    kv_transfer_config: KvTransferConfig | None


def load_campaign(path: Path) -> CampaignConfig:
    """Read and check one campaign file.

    Raises:
        ConfigError: unreadable, not YAML, or not a valid campaign; names key, value and remedy.
    """
    return parse_campaign(read_yaml(path), where=str(path))


def parse_campaign(
    mapping: Foreign, where: str, known: dict[str, ConnectorEntry] | None = None
) -> CampaignConfig:
    """Check a campaign that is already a mapping, as Snakemake has read the YAML.

    Args:
        where: the file, for messages.
        known: connectors by id, in place of its ``connectors_file``.
    """
    allowed = mapping.get("allow_inline")
    allowed = allowed if isinstance(allowed, list) else ()
    refuse_inline(mapping, where, allowed)
    asked = checked(mapping, CampaignYaml, where)
    check_engine(asked.engine, where)
    if known is None:
        known = read_connectors(PROJECT_ROOT / asked.connectors_file, asked.connectors_file, allowed)
    listed = [*known]
    if not known.keys() >= {c.removeprefix(MATCHED) for c in asked.connectors}:
        known = {**read_connectors(TEST_CONNECTORS, str(TEST_CONNECTORS)), **known}
    connectors = tuple(
        _connector(connector_id, asked, known, listed, f"{where}: connectors[{k}]")
        for k, connector_id in enumerate(asked.connectors)
    )
    a, b, b_prime = asked.phase_a, asked.phase_b, asked.phase_b_prime
    levels = {k: tuple(sorted(getattr(asked.phase_d, k))) for k in ("cached_tokens", "running")}
    alike = {k: part for k, part in asdict(asked).items() if k in CampaignConfig.__struct_fields__}
    config = CampaignConfig(
        **{
            **alike,
            "engine": _engine(asked.engine, where),
            "connectors": connectors,
            "phase_a_rates_per_s": tuple(sorted(a.rates_per_s)),
            "phase_a_shape": Shape(a.input_tokens, a.output_tokens),
            "phase_a_stop_after_overloaded": a.stop_after_overloaded,
            "phase_b_input_tokens": tuple(sorted(b.input_tokens)),
            "phase_b_output_tokens": tuple(sorted(b.output_tokens)),
            "phase_b_prime": PhaseBPrimeConfig(b_prime.configs, tuple(Shape(*s) for s in b_prime.shapes)),
            "phase_c": PhaseCConfig(
                tuple(map(_session_file, asked.phase_c.sessions)), asked.phase_c.warmup_s
            ),
            "phase_d": replace(asked.phase_d, **levels),
        }
    )
    know_references(config.to_json())
    _check_lengths(config, where)
    _check_levels(config, where)
    return config


def read_connectors(file: Path, where: str, allowed: Collection[str] = ()) -> dict[str, ConnectorEntry]:
    """Read connector entries by id.

    Args:
        allowed: keys whose values may look like secrets.

    Raises:
        ConfigError: unreadable or invalid; names key, value and remedy.
    """
    value = read_yaml(file)
    refuse_inline(value, where, allowed)
    known = checked(value, dict[ConnectorId, ConnectorEntry], where)
    checked(value, dict[str, _KnownPart], where)
    return known


def _connector(
    connector_id: str, asked: CampaignYaml, known: dict[str, ConnectorEntry], listed: list[str], where: str
) -> ConnectorSpec:
    file, target, entry = asked.connectors_file, None, known.get(connector_id)
    if connector_id.startswith(MATCHED):
        # Plain vLLM, with settings that preflight finds out.
        target = connector_id.removeprefix(MATCHED)
        if target not in asked.connectors or target not in known:
            raise ConfigError(
                f"{where}: {connector_id!r} is plain vLLM with the engine settings of {target!r}, which is"
                f" not among this campaign's connectors ({', '.join(asked.connectors)}). Add it, or leave the"
                " baseline out."
            )
        entry = replace(known["plain"], label=f"plain as {known[target].label}")
    if entry is None:
        raise ConfigError(
            f"{where}: unknown connector {meant(connector_id, listed)}\nKnown: {', '.join(listed)}. Add new"
            f" ones in {file}."
        )
    for place, leaf in leaves(msgspec.to_builtins(entry)):
        if place.endswith(STORE_KEYS) and isinstance(leaf, str) and STORE not in leaf:
            raise ConfigError(
                f"{file}: {connector_id}.{place}: {leaf!r} would be the same folder in every launch, and what"
                f" one launch stored there the next one's cache hits. Write {STORE} for it, an empty folder"
                " that each launch gets."
            )
    check_launch(entry.extra_args, entry.env, f"{file}: {connector_id}")
    return ConnectorSpec(
        id=connector_id,
        matches=target,
        **{
            **asdict(entry),
            **_launched(entry, "kv_transfer_config"),
            # Preflight tries every configuration, whatever its entry says.
            "verify": "serve" if isinstance(entry.verify, bool) else entry.verify,
        },
    )


def _launched(part: ConnectorEntry | EngineYaml, mapping: str) -> Foreign:
    """Return the parts for command line and environment, with references to non-secret variables resolved."""
    found = {k: without_harmless_references(getattr(part, k)) for k in (mapping, "env")}
    return {**found, "extra_args": tuple(without_harmless_references([*part.extra_args]))}


def _engine(value: EngineYaml, where: str) -> EngineConfig:
    launched = _launched(value, "args")
    python, gpu = value.python, value.virtual_gpu
    costs = value.model_file if value.kind == "emulator" else None
    args = {**({} if gpu is None else {"gpu_memory_utilization": UTILIZATION}), **launched["args"]}
    for name in COUNTED:
        try:
            # A value that leaves the choice to the engine is passed on as it is.
            count = token_count(args.get(name))
        except ValueError as error:
            raise ConfigError(
                f"{where}: engine.args.{name}: {error}. Give a whole number, one such as 32k (32,000) or 32K"
                " (32,768), or, for max_model_len, auto."
            ) from error
        args |= {} if count is None else {name: count}
    return EngineConfig(
        **{
            **asdict(value),
            **launched,
            "args": args,
            "python": None if python is None else put_in(python, f"{where}: engine.python"),
            "model": put_in(value.model, f"{where}: engine.model"),
            "model_sha256": None if costs is None else _content_of(costs, f"{where}: engine.model_file"),
            "virtual_gpu": None if gpu is None else virtual_gpu(gpu, f"{where}: engine.virtual_gpu"),
            "container": _container(value.container, f"{where}: engine.container"),
        }
    )


def _container(value: str | ContainerConfig | None, where: str) -> ContainerConfig | None:
    """Resolve the container; a text is the image alone.

    Raises:
        ConfigError: it contains an unset variable.
    """
    if value is None:
        return None
    given = ContainerConfig(value) if isinstance(value, str) else value
    image = put_in(given.image, f"{where}.image")
    mounts = tuple(put_in(mount, f"{where}.mounts") for mount in given.mounts)
    unset = next((text for text in (image, *mounts) if "${" in text), None)
    if unset is not None:
        raise ConfigError(
            f"{where}: {unset}: that environment variable is not set. Set it, or write the name itself."
        )
    # The type checked only the variables' names.
    if not image or image.startswith("-"):
        raise ConfigError(f"{where}.image: {image!r}, of {given.image}, names no image.")
    for mount in mounts:
        if not mount.startswith("/") or Path(os.path.normpath(mount)) in (Path("/"), Path("//")):
            raise ConfigError(
                f"{where}.mounts: {mount!r}: an absolute path is wanted, and not the root, in which the"
                " image's own files are."
            )
    return replace(given, image=image, mounts=mounts)


def _content_of(file: str, where: str) -> str:
    """Return the checksum of a file of the project.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return sha256_of(PROJECT_ROOT / file)
    except (OSError, ValueError, ArtifactError) as error:
        raise ConfigError(
            f"{where}: {shown(file)}: cannot be read, as seen from {PROJECT_ROOT} ({error}). Give a file that"
            " can."
        ) from error


def _session_file(path: str) -> SessionFile:
    """Describe a session file for the plan; its path stays relative to the project's root."""
    sessions = read_sessions(PROJECT_ROOT / path)
    turns = sum(len(s.turns) for s in sessions) / len(sessions)
    return SessionFile(path, sha256_of(PROJECT_ROOT / path), turns)


def longest_request_tokens(config: CampaignConfig) -> int:
    """Return the tokens of the campaign's longest request, prompt plus output."""
    return max(
        [
            config.phase_a_shape.input_tokens + config.phase_a_shape.output_tokens,
            max(config.phase_b_input_tokens, default=0) + max(config.phase_b_output_tokens, default=0),
            *(s.input_tokens + s.output_tokens for s in config.phase_b_prime.shapes),
            *(
                session.longest_tokens()
                for file in config.phase_c.sessions
                for session in read_sessions(PROJECT_ROOT / file.path)
            ),
            config.accuracy.input_tokens + config.accuracy.output_tokens if config.accuracy.prompts else 0,
            config.phase_d.input_tokens + config.phase_d.output_tokens if config.phase_d.cached_tokens else 0,
        ]
    )


def _check_lengths(config: CampaignConfig, where: str) -> None:
    limit = token_count(config.engine.args.get("max_model_len"))
    longest = longest_request_tokens(config)
    if limit is not None and longest > limit:
        raise ConfigError(
            f"{where}: engine.args.max_model_len: {limit} is below the longest request of this campaign "
            f"({longest} tokens, prompt and output). Raise it, or shorten the shapes."
        )


def _check_levels(config: CampaignConfig, where: str) -> None:
    """Refuse a Phase D that does not fit engine and client; a card's KV blocks are known only at run time.

    Raises:
        ConfigError: names key, value and remedy.
    """
    phase, args, at = config.phase_d, config.engine.args, f"{where}: phase_d"
    if not phase.cached_tokens:
        return
    if args.get("enable_prefix_caching") is False:
        raise ConfigError(
            f"{at}.cached_tokens: engine.args.enable_prefix_caching is false, so nothing stays cached. "
            "Switch it on, or leave phase_d out."
        )
    known = {name: token_count(args.get(name)) for name in COUNTED}
    most = max(phase.running)
    for name, limit in (
        ("cell.inflight_cap", config.cell.inflight_cap),
        ("engine.args.max_num_seqs", known["max_num_seqs"]),
    ):
        if limit is not None and most > limit:
            raise ConfigError(
                f"{at}.running: {most} requests cannot run at once with {name}: {limit}. Raise it, or ask for"
                " fewer."
            )
    shortest_s = phase.warmup_s + phase.duration_s
    if config.cell.max_cell_s < shortest_s:
        raise ConfigError(
            f"{at}: warm-up plus window take {shortest_s:g} s, cell.max_cell_s is {config.cell.max_cell_s:g}"
            " s; no cell could ever finish."
        )
    blocks, longest = known["num_gpu_blocks_override"], phase.input_tokens + phase.output_tokens
    room = None if blocks is None else blocks * (known["block_size"] or BLOCK_SIZE)
    wanted = phase.cached_tokens[-1] + most * longest
    if room is not None and wanted > room:
        raise ConfigError(
            f"{at}.cached_tokens: {phase.cached_tokens[-1]} cached beside {most} running requests of"
            f" {longest} tokens want {wanted} tokens, and engine.args.num_gpu_blocks_override: {blocks} has"
            f" room for {room}. Lower the highest level."
        )
