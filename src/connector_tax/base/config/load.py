"""YAML files to a frozen ``CampaignConfig``.

The JSON Schemas in ``workflow/schemas/`` hold the types, the bounds and every default; this module adds the checks
that no schema can express.
"""

import os
from pathlib import Path
from typing import Any

from connector_tax.base.config.checked import PROJECT_ROOT, checked, read_yaml
from connector_tax.base.config.gpu import UTILIZATION, virtual_gpu
from connector_tax.base.config.levels import check_phase_d
from connector_tax.base.config.model import (
    AccuracyConfig,
    AnalysisConfig,
    CampaignConfig,
    CellConfig,
    ContainerConfig,
    EngineConfig,
    PhaseBPrimeConfig,
    PhaseCConfig,
    PhaseDConfig,
    SessionFile,
)
from connector_tax.base.config.reserved import check_engine, check_launch
from connector_tax.base.config.secrets import put_in, refuse_inline, without_harmless_references
from connector_tax.base.errors import ArtifactError, ConfigError
from connector_tax.base.files import sha256_of, shown
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.cell import Shape
from connector_tax.base.records.connector import MATCHED, STORE, ConnectorSpec, ModuleNeed, SidePort
from connector_tax.base.records.sessions import read_sessions
from connector_tax.base.secrets import know_references
from connector_tax.base.units import token_count

# Arguments that vLLM takes with a suffix, ``32k``.
COUNTED = ("max_model_len", "max_num_batched_tokens", "max_num_seqs")
# In nobody's list; a campaign names them all the same. Not a path that imports.py finds, as in gpu.py.
TEST_CONNECTORS = PROJECT_ROOT.joinpath("config", "test_connectors.yaml")
# Where connectors are told to keep KV on disk. A folder that launches share makes one launch's KV the next one's cache hits.
STORE_KEYS = ("shared_storage_path", "LMCACHE_LOCAL_DISK", "lmcache.local_disk")


def load_campaign(path: Path) -> CampaignConfig:
    """Read and check one campaign file.

    Raises:
        ConfigError: unreadable, not YAML, or not a valid campaign; names key, value and remedy.
    """
    return parse_campaign(read_yaml(path), where=str(path))


def parse_campaign(mapping: Foreign, where: str) -> CampaignConfig:
    """Check a campaign that is a mapping already (Snakemake has read the YAML by then).

    Args:
        where: the file to name in messages.
    """
    allowed = mapping.get("allow_inline")
    allowed = allowed if isinstance(allowed, list) else ()
    refuse_inline(mapping, where, allowed)
    value = checked(mapping, "config", where)
    check_engine(value["engine"], where)
    entries = read_yaml(PROJECT_ROOT / value["connectors_file"])
    refuse_inline(entries, value["connectors_file"], allowed)
    known = checked(entries, "connectors", value["connectors_file"])
    listed = ", ".join(known)
    if not known.keys() >= {c.removeprefix(MATCHED) for c in value["connectors"]}:
        known = {**checked(read_yaml(TEST_CONNECTORS), "connectors", str(TEST_CONNECTORS)), **known}
    for index, connector_id in enumerate(value["connectors"]):
        if connector_id.startswith(MATCHED):
            known[connector_id] = _matched(
                connector_id, known, value["connectors"], f"{where}: connectors[{index}]"
            )
        if connector_id not in known:
            raise ConfigError(
                f"{where}: connectors[{index}]: unknown connector {connector_id!r}.\n"
                f"Known: {listed}. Add new ones in {value['connectors_file']}."
            )
        _check_store(connector_id, known[connector_id], value["connectors_file"])
        own = known[connector_id]
        check_launch(own["extra_args"], own["env"], f"{value['connectors_file']}: {connector_id}")
    b, b_prime = value["phase_b"], value["phase_b_prime"]
    if bool(b["input_tokens"]) != bool(b["output_tokens"]):
        raise ConfigError(
            f"{where}: phase_b: input_tokens {b['input_tokens']}, output_tokens {b['output_tokens']}. Give both, or neither: "
            "without lengths there is no Phase B."
        )
    for index, connector_id in enumerate(b_prime["configs"]):
        if connector_id not in value["connectors"]:
            raise ConfigError(
                f"{where}: phase_b_prime.configs[{index}]: {connector_id!r} is not among this campaign's "
                f"connectors ({', '.join(value['connectors'])})."
            )
    # A float in the YAML may be written 10 or 10.0; both must give the same hash.
    seconds = {k: float(v) for k, v in value["cell"].items() if k.endswith("_s")}
    cell = CellConfig(**{**value["cell"], **seconds})
    _check_cell(cell, where)
    config = CampaignConfig(
        campaign=value["campaign"],
        seed=value["seed"],
        engine=_engine(value["engine"], where),
        connectors=tuple(_connector(i, known[i]) for i in value["connectors"]),
        phase_a_rates_per_s=tuple(sorted(float(r) for r in value["phase_a"]["rates_per_s"])),
        phase_a_shape=Shape(value["phase_a"]["input_tokens"], value["phase_a"]["output_tokens"]),
        phase_a_stop_after_overloaded=value["phase_a"]["stop_after_overloaded"],
        phase_b_input_tokens=tuple(sorted(b["input_tokens"])),
        phase_b_output_tokens=tuple(sorted(b["output_tokens"])),
        phase_b_prime=PhaseBPrimeConfig(
            tuple(b_prime["configs"]), tuple(Shape(int(s[0]), int(s[1])) for s in b_prime["shapes"])
        ),
        phase_c=PhaseCConfig(
            tuple(_session_file(path) for path in value["phase_c"]["sessions"]),
            float(value["phase_c"]["warmup_s"]),
        ),
        phase_d=_phase_d(value["phase_d"]),
        observer_effect=value["observer_effect"],
        repeats=value["repeats"],
        repeat_requests=value["repeat_requests"],
        cell=cell,
        accuracy=AccuracyConfig(**value["accuracy"]),
        analysis=AnalysisConfig(**value["analysis"]),
    )
    know_references(config.to_json())
    _check_lengths(config, where)
    check_phase_d(config, where)
    return config


def _matched(connector_id: str, known: Foreign, listed: list[str], where: str) -> Foreign:
    """The entry of ``plain_matched_<id>``: plain vLLM; which settings, preflight finds out."""
    target = connector_id.removeprefix(MATCHED)
    if target not in listed or target not in known:
        raise ConfigError(
            f"{where}: {connector_id!r} is plain vLLM with the engine settings of {target!r}, which is not among this "
            f"campaign's connectors ({', '.join(listed)}). Add it, or leave the baseline out."
        )
    label = f"plain as {known[target]['label']}"
    return {**known["plain"], "label": label, "matches": target}


def _engine(value: Foreign, where: str) -> EngineConfig:
    value = {**value, **{k: without_harmless_references(value[k]) for k in ("args", "extra_args", "env")}}
    python, gpu = value["python"], value["virtual_gpu"]
    _check_device(value["kind"], gpu, where)
    if value["kind"] != "emulator":
        if python is None and value["container"] is None:
            raise ConfigError(
                f"{where}: engine.python: null, but engine.kind is {value['kind']}. Give the interpreter that has vLLM, "
                "for instance ${ENGINE_PYTHON} with that variable set."
            )
    elif value["model_file"] is None:
        raise ConfigError(
            f"{where}: engine.model_file: null, but engine.kind is emulator. Give a cost model, "
            "for instance config/engine_model_demo.yaml."
        )
    costs = value["model_file"] if value["kind"] == "emulator" else None
    told = {} if gpu is None else {"gpu_memory_utilization": UTILIZATION}
    return EngineConfig(
        **{
            **value,
            "args": _with_counts({**told, **value["args"]}, f"{where}: engine.args"),
            "python": None if python is None else put_in(python, f"{where}: engine.python"),
            "model": put_in(value["model"], f"{where}: engine.model"),
            "extra_args": tuple(value["extra_args"]),
            "model_sha256": None if costs is None else _content_of(costs, f"{where}: engine.model_file"),
            "virtual_gpu": None if gpu is None else virtual_gpu(gpu, where),
            "gpus": None if value["gpus"] is None else tuple(value["gpus"]),
            "container": _container(value["container"], f"{where}: engine.container"),
        }
    )


def _container(value: str | Foreign | None, where: str) -> ContainerConfig | None:
    """A text is the image alone.

    Raises:
        ConfigError: a variable in it is not set.
    """
    if value is None:
        return None
    given: Foreign = {"image": value} if isinstance(value, str) else value
    image = put_in(given["image"], f"{where}.image")
    mounts = tuple(put_in(mount, f"{where}.mounts") for mount in given.get("mounts", ()))
    unset = next((text for text in (image, *mounts) if "${" in text), None)
    if unset is not None:
        raise ConfigError(
            f"{where}: {unset}: that environment variable is not set. Set it, or write the name itself."
        )
    # The schema saw the variables' names alone.
    if not image or image.startswith("-"):
        raise ConfigError(f"{where}.image: {image!r}, of {given['image']}, names no image.")
    for mount in mounts:
        if not mount.startswith("/") or Path(os.path.normpath(mount)) in (Path("/"), Path("//")):
            raise ConfigError(
                f"{where}.mounts: {mount!r}: an absolute path is wanted, and not the root, in which the image's own files are."
            )
    return ContainerConfig(image, given.get("runtime"), mounts)


def _content_of(file: str, where: str) -> str:
    """The checksum of a file of the project.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return sha256_of(PROJECT_ROOT / file)
    except FileNotFoundError as error:
        raise ConfigError(f"{where}: {shown(file)}: no such file, as seen from {PROJECT_ROOT}.") from error
    except (OSError, ValueError, ArtifactError) as error:
        raise ConfigError(f"{where}: {shown(file)}: cannot be read ({error}).") from error


def _check_device(kind: str, gpu: Foreign | None, where: str) -> None:
    """A device is described for the kind that has none, and for no other."""
    if kind == "virtual_gpu" and gpu is None:
        raise ConfigError(
            f"{where}: engine.virtual_gpu: missing, but engine.kind is virtual_gpu. Say which GPU the clock goes by, "
            "for instance {gpu: h200}."
        )
    if kind != "virtual_gpu" and gpu is not None:
        raise ConfigError(
            f"{where}: engine.virtual_gpu: given, but engine.kind is {kind}, which has a device of its own. "
            "Leave the section out, or set engine.kind to virtual_gpu."
        )


def _with_counts(args: Foreign, where: str) -> Foreign:
    """``32k`` as vLLM reads it, so that all that asks for a length or a number has one.

    Raises:
        ConfigError: what vLLM would not take either.
    """
    counts = {}
    for name in COUNTED:
        if name not in args:
            continue
        try:
            # What leaves it to the engine is said to the engine as it stands here.
            known = token_count(args[name])
        except ValueError as error:
            raise ConfigError(
                f"{where}.{name}: {error}. Give a whole number, one such as 32k (32,000) or 32K (32,768), or, for max_model_len, auto."
            ) from error
        counts[name] = args[name] if known is None else known
    return {**args, **counts}


def _connector(connector_id: str, value: Foreign) -> ConnectorSpec:
    launch = ("kv_transfer_config", "extra_args", "env")
    value = {**value, **{k: without_harmless_references(value[k]) for k in launch}}
    return ConnectorSpec(
        id=connector_id,
        **{
            **value,
            # Every configuration is launched and asked before it is measured, whether its entry says so or not.
            "verify": "serve" if value["verify"] is True else value["verify"],
            "extra_args": tuple(value["extra_args"]),
            "modules": tuple(ModuleNeed(**m) for m in value["modules"]),
            "side_ports": tuple(SidePort(**p) for p in value["side_ports"]),
            "verify_within_s": float(value["verify_within_s"]),
        },
    )


def _check_store(connector_id: str, part: Any, where: str) -> None:
    """Refuse a store on disk that is not the launch's own."""
    if isinstance(part, list):
        for one in part:
            _check_store(connector_id, one, where)
    for name, inner in part.items() if isinstance(part, dict) else ():
        if name in STORE_KEYS and isinstance(inner, str) and STORE not in inner:
            raise ConfigError(
                f"{where}: {connector_id}: {name}: {inner!r} would be the same folder in every launch, and what one launch "
                f"stored there the next one's cache hits. Write {STORE} for it, an empty folder that each launch gets."
            )
        _check_store(connector_id, inner, where)


def _session_file(path: str) -> SessionFile:
    """Described by what the plan needs; the path stays as given, relative to the project's root."""
    sessions = read_sessions(PROJECT_ROOT / path)
    turns = sum(len(s.turns) for s in sessions) / len(sessions)
    return SessionFile(path, sha256_of(PROJECT_ROOT / path), turns)


def _phase_d(value: Foreign) -> PhaseDConfig:
    seconds = {k: float(v) for k, v in value.items() if k.endswith("_s")}
    levels = {k: tuple(sorted(value[k])) for k in ("cached_tokens", "running")}
    return PhaseDConfig(**{**value, **seconds, **levels})


def _check_cell(cell: CellConfig, where: str) -> None:
    if cell.token_id_low >= cell.token_id_high:
        raise ConfigError(
            f"{where}: cell.token_id_low: {cell.token_id_low} is not below cell.token_id_high "
            f"({cell.token_id_high}); prompts draw their token ids from between the two."
        )
    if (cell.gamma_shape is not None) != (cell.arrival == "gamma"):
        raise ConfigError(
            f"{where}: cell.gamma_shape: {cell.gamma_shape}, but cell.arrival is {cell.arrival}. "
            "Give a shape with arrival gamma, and with no other."
        )
    if (cell.stop_half_width is None) != (cell.max_completed is None):
        raise ConfigError(
            f"{where}: cell.stop_half_width: {cell.stop_half_width}, cell.max_completed: {cell.max_completed}. A stopping "
            "rule wants both, the width at which a cell may end and the requests after which it does; else leave both out."
        )
    if cell.max_completed is not None and cell.max_completed <= cell.min_completed:
        raise ConfigError(
            f"{where}: cell.max_completed: {cell.max_completed} is not above cell.min_completed ({cell.min_completed}), "
            "at which the first look is taken."
        )
    if cell.max_cell_s < cell.warmup_s + cell.duration_s:
        raise ConfigError(
            f"{where}: cell.max_cell_s: {cell.max_cell_s:g} is shorter than warm-up plus window "
            f"({cell.warmup_s:g} + {cell.duration_s:g} s); no cell could ever finish."
        )


def longest_request_tokens(config: CampaignConfig) -> int:
    """Tokens of the campaign's longest request, prompt and output."""
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
        ]
    )


def _check_lengths(config: CampaignConfig, where: str) -> None:
    limit = token_count(config.engine.args.get("max_model_len"))
    if limit is None:
        return
    longest = longest_request_tokens(config)
    if longest > limit:
        raise ConfigError(
            f"{where}: engine.args.max_model_len: {limit} is below the longest request of this campaign "
            f"({longest} tokens, prompt and output). Raise it, or shorten the shapes."
        )
