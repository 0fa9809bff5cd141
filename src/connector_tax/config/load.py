"""YAML files to a frozen ``CampaignConfig``.

The JSON Schemas in ``workflow/schemas/`` hold the types, the bounds and every default; this module
reports their complaints as one readable message and adds the checks no schema can express.
"""

import copy
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator, ValidationError, validators

from connector_tax.config.model import (
    AccuracyConfig,
    AnalysisConfig,
    CampaignConfig,
    CellConfig,
    EngineConfig,
    PhaseBPrimeConfig,
    PhaseCConfig,
    SessionFile,
)
from connector_tax.errors import ConfigError
from connector_tax.files import sha256_of
from connector_tax.records.cell import Shape
from connector_tax.records.connector import ConnectorSpec, ModuleNeed
from connector_tax.records.sessions import read_sessions

PROJECT_ROOT = Path(__file__).resolve().parents[3]
# plain_matched_<id> needs no entry of its own.
MATCHED = "plain_matched_"
SCHEMAS = PROJECT_ROOT / "workflow" / "schemas"


def load_campaign(path: Path) -> CampaignConfig:
    """Read and check one campaign file.

    Raises:
        ConfigError: unreadable, not YAML, or not a valid campaign; names key, value and remedy.
    """
    return parse_campaign(_read_yaml(path), where=str(path))


def parse_campaign(mapping: Mapping[str, Any], where: str) -> CampaignConfig:
    """Check a campaign that is a mapping already (Snakemake has read the YAML by then).

    Args:
        where: the file to name in messages.
    """
    value = _checked(mapping, "config", where)
    connectors_file = PROJECT_ROOT / value["connectors_file"]
    known = _checked(_read_yaml(connectors_file), "connectors", value["connectors_file"])
    for index, connector_id in enumerate(value["connectors"]):
        if connector_id.startswith(MATCHED):
            known[connector_id] = _matched(
                connector_id, known, value["connectors"], f"{where}: connectors[{index}]"
            )
        if connector_id not in known:
            raise ConfigError(
                f"{where}: connectors[{index}]: unknown connector {connector_id!r}.\n"
                f"Known: {', '.join(known)}. Add new ones in {value['connectors_file']}."
            )
    b_prime = value["phase_b_prime"]
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
        phase_b_input_tokens=tuple(sorted(value["phase_b"]["input_tokens"])),
        phase_b_output_tokens=tuple(sorted(value["phase_b"]["output_tokens"])),
        phase_b_prime=PhaseBPrimeConfig(
            tuple(b_prime["configs"]), tuple(Shape(int(s[0]), int(s[1])) for s in b_prime["shapes"])
        ),
        phase_c=PhaseCConfig(
            tuple(_session_file(path) for path in value["phase_c"]["sessions"]),
            float(value["phase_c"]["warmup_s"]),
        ),
        observer_effect=value["observer_effect"],
        repeats=value["repeats"],
        cell=cell,
        accuracy=AccuracyConfig(**value["accuracy"]),
        analysis=AnalysisConfig(**value["analysis"]),
    )
    _check_rates(config, where)
    _check_lengths(config, where)
    return config


def _matched(connector_id: str, known: dict[str, Any], listed: list[str], where: str) -> dict[str, Any]:
    """The entry of ``plain_matched_<id>``: plain vLLM; which settings, preflight finds out."""
    target = connector_id.removeprefix(MATCHED)
    if target not in listed or target not in known:
        raise ConfigError(
            f"{where}: {connector_id!r} is plain vLLM with the engine settings of {target!r}, which is not among this "
            f"campaign's connectors ({', '.join(listed)}). Add it, or leave the baseline out."
        )
    label = f"plain as {known[target]['label']}"
    return {**known["plain"], "label": label, "matches": target}


def _engine(value: dict[str, Any], where: str) -> EngineConfig:
    python = value["python"]
    if value["kind"] == "vllm":
        if python is None:
            raise ConfigError(
                f"{where}: engine.python: null, but engine.kind is vllm. Give the interpreter that has vLLM, "
                "for instance ${ENGINE_PYTHON} with that variable set."
            )
    elif value["model_file"] is None:
        raise ConfigError(
            f"{where}: engine.model_file: null, but engine.kind is emulator. Give a cost model, "
            "for instance config/engine_model_demo.yaml."
        )
    return EngineConfig(
        **{
            **value,
            "python": None if python is None else _expand(python, f"{where}: engine.python"),
            "model": _expand(value["model"], f"{where}: engine.model"),
            "extra_args": tuple(value["extra_args"]),
        }
    )


def _connector(connector_id: str, value: dict[str, Any]) -> ConnectorSpec:
    return ConnectorSpec(
        id=connector_id,
        **{
            **value,
            # Every configuration is launched and asked before it is measured, whether its entry says so or not.
            "verify": "serve" if value["verify"] is True else value["verify"],
            "extra_args": tuple(value["extra_args"]),
            "modules": tuple(ModuleNeed(**m) for m in value["modules"]),
        },
    )


def _session_file(path: str) -> SessionFile:
    """Described by what the plan needs; the path stays as given, relative to the project's root."""
    sessions = read_sessions(PROJECT_ROOT / path)
    turns = sum(len(s.turns) for s in sessions) / len(sessions)
    return SessionFile(path, sha256_of(PROJECT_ROOT / path), turns)


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


def _check_rates(config: CampaignConfig, where: str) -> None:
    for rate in config.phase_a_rates_per_s:
        if not math.isfinite(rate):
            raise ConfigError(
                f"{where}: phase_a.rates_per_s: {rate} is not a rate; give requests per second."
            )


def _check_lengths(config: CampaignConfig, where: str) -> None:
    limit = config.engine.args.get("max_model_len")
    if limit is None:
        return
    longest = max(
        [
            config.phase_a_shape.input_tokens + config.phase_a_shape.output_tokens,
            max(config.phase_b_input_tokens) + max(config.phase_b_output_tokens),
            *(s.input_tokens + s.output_tokens for s in config.phase_b_prime.shapes),
            *(
                session.longest_tokens()
                for file in config.phase_c.sessions
                for session in read_sessions(PROJECT_ROOT / file.path)
            ),
            config.accuracy.input_tokens + config.accuracy.output_tokens if config.accuracy.prompts else 0,
        ]
    )
    if longest > int(limit):
        raise ConfigError(
            f"{where}: engine.args.max_model_len: {limit} is below the longest request of this campaign "
            f"({longest} tokens, prompt and output). Raise it, or shorten the shapes."
        )


_VARIABLE = re.compile(r"\$\{(\w+)\}")


def _expand(text: str, where: str) -> str:
    """Put environment variables in; one that is not set stays, and is named when it is used."""
    return _VARIABLE.sub(lambda m: os.environ.get(m.group(1), m.group(0)), text)


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file. Give an existing one, such as config/demo.yaml.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}).") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: a mapping is wanted at the top, found {type(value).__name__}.")
    return value


def _checked(mapping: Mapping[str, Any], schema_name: str, where: str) -> dict[str, Any]:
    """A copy of ``mapping`` with defaults filled in, or one message with every complaint."""
    value = copy.deepcopy(dict(mapping))
    errors = sorted(
        _validator(schema_name).iter_errors(value), key=lambda e: [str(p) for p in e.absolute_path]
    )
    if errors:
        raise ConfigError("\n".join(f"{where}: {_sentence(e)}" for e in errors))
    return value


def _sentence(error: ValidationError) -> str:
    place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.absolute_path).lstrip(".")
    place = place or "top level"
    schema = error.schema if isinstance(error.schema, dict) else {}
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        known = list(schema.get("properties", {}))
        unknown = [k for k in error.instance if k not in known]
        return f"{place}: unknown key {', '.join(map(repr, unknown))}. Allowed: {', '.join(known)}."
    if error.validator == "required":
        present: Any = error.instance
        missing = [k for k in schema["required"] if k not in present]
        return f"{place}: missing {', '.join(map(repr, missing))}."
    if error.validator == "contains":
        return f"{place}: {error.instance!r} holds no 'plain'; every tax is taken against it, so add it."
    allowed: dict[str, Callable[[Any], str]] = {
        "enum": lambda v: f"one of {', '.join(map(repr, v))}",
        "type": lambda v: f"{v if isinstance(v, str) else ' or '.join(v)}",
        "minimum": lambda v: f"{v} or more",
        "maximum": lambda v: f"{v} or less",
        "exclusiveMinimum": lambda v: f"more than {v}",
        "exclusiveMaximum": lambda v: f"less than {v}",
        "pattern": lambda v: f"text matching {v}",
        "minItems": lambda v: f"at least {v} entries",
        "maxItems": lambda v: f"at most {v} entries",
        "uniqueItems": lambda v: "entries that differ from one another",
    }
    name = str(error.validator)
    if name not in allowed:
        return f"{place}: {error.message}."
    return f"{place}: {error.instance!r} is not allowed; wanted: {allowed[name](error.validator_value)}."


@cache
def _validator(schema_name: str) -> Any:
    schema = yaml.safe_load((SCHEMAS / f"{schema_name}.schema.yaml").read_text(encoding="utf-8"))
    filling: Any = _filling_defaults(Draft202012Validator)
    return filling(schema)


def _filling_defaults(base: Any) -> Any:
    """A validator class that puts each property's ``default`` in before it looks inside.

    Source: the recipe in the jsonschema FAQ, "Why doesn't my schema's default property set...".
    """
    check_properties = base.VALIDATORS["properties"]

    def set_then_check(
        validator: Any, properties: dict[str, Any], instance: Any, schema: dict[str, Any]
    ) -> Iterator[ValidationError]:
        if isinstance(instance, dict):
            for name, subschema in properties.items():
                if "default" in subschema:
                    instance.setdefault(name, copy.deepcopy(subschema["default"]))
        yield from check_properties(validator, properties, instance, schema)

    extend: Any = validators.extend
    return extend(base, {"properties": set_then_check})
