"""What the config's types let be measured the analysis can read: a campaign is refused before the first launch, or not at all.

Every number of ``workflow/schemas/config.schema.json`` is put to its bounds and, where it has none, far beyond any; what the config
takes then goes through the files of a campaign and is held against the types in ``base/documents/``, as the analysis does.
"""

import json
import sys
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
import yaml
from builders import DATE, ROOT

from connector_tax.base.capacity import SMALLEST_FRACTION
from connector_tax.base.config import CampaignConfig, parse_campaign
from connector_tax.base.documents.campaign import CampaignDocument
from connector_tax.base.documents.cell import cell_of
from connector_tax.base.documents.rates import ReferenceRatesFile
from connector_tax.base.documents.receipt import PreflightStatus
from connector_tax.base.errors import ConfigError
from connector_tax.base.files import document_of, parse_json, read_json, to_json
from connector_tax.base.plan import campaign_document, cells_of, config_of
from connector_tax.base.records.cell import CellSpec

SCHEMA = json.loads((ROOT / "workflow" / "schemas" / "config.schema.json").read_text())
# Far beyond what a schema without a bound might have meant.
HUGE_INT, HUGE_FLOAT, TINY = 10**30, 1e300, 1e-300
Way = tuple[str | int, ...]

# What another key must be for the config to take a value at its bounds.
BESIDE: dict[str, dict[str, Any]] = {
    "cell.gamma_shape": {"cell.arrival": "gamma"},
    "cell.stop_half_width": {"cell.max_completed": 1_000_000_000},
    "cell.max_completed": {"cell.stop_half_width": 0.1, "cell.min_completed": 6},
    "cell.token_id_low": {"cell.token_id_high": 2_147_483_647},
    "cell.token_id_high": {"cell.token_id_low": 0},
    "cell.warmup_s": {"cell.max_cell_s": 1_000_000, "cell.duration_s": TINY},
    "cell.max_cell_s": {"cell.warmup_s": 0, "cell.duration_s": TINY, "phase_d": {}},
    "phase_d.running.0": {"cell.inflight_cap": 1_000_000},
    "phase_d.warmup_s": {"cell.max_cell_s": 1_000_000, "phase_d.duration_s": TINY},
    "phase_d.duration_s": {"cell.max_cell_s": 1_000_000, "phase_d.warmup_s": 0},
    "cell.duration_s": {"cell.max_cell_s": 1_000_000, "cell.warmup_s": 0},
}
# At these bounds two keys exclude one another, and the config says so.
EXCLUDED = {("cell.token_id_low", 2_147_483_647), ("cell.token_id_high", 0), ("cell.max_completed", 6)}


def numbers(schema: dict[str, Any], way: Way = ()) -> Iterator[tuple[Way, dict[str, Any]]]:
    """Every place in a config where a number may stand, and its schema."""
    if "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
    for inner in schema.get("anyOf", ()):
        for at, found in numbers(inner, way):
            yield at, {**found, "null": at == way and {"type": "null"} in schema["anyOf"]}
    if schema.get("type") in ("number", "integer"):
        yield way, schema
    for name, inner in schema.get("properties", {}).items():
        yield from numbers(inner, (*way, name))
    for index, inner in enumerate(schema.get("prefixItems", ())):
        yield from numbers(inner, (*way, index))
    if isinstance(schema.get("items"), dict):
        yield from numbers(schema["items"], (*way, 0))
    if isinstance(schema.get("additionalProperties"), dict):
        yield from numbers(schema["additionalProperties"], (*way, "block_size"))


def at_bounds(schema: dict[str, Any]) -> Iterator[Any]:
    """The values at the ends, as whole numbers and, where they may be none, as others; null where that is one."""
    whole = schema["type"] == "integer"
    low, high = schema.get("minimum"), schema.get("maximum")
    beyond = HUGE_INT if whole else HUGE_FLOAT
    yield from (low, high) if low is not None and high is not None else (low,) if low is not None else ()
    if high is None and "exclusiveMaximum" not in schema:
        yield beyond
    elif high is not None and low is None and "exclusiveMinimum" not in schema:
        yield -beyond
    if "exclusiveMinimum" in schema:
        yield schema["exclusiveMinimum"] + (TINY if schema["exclusiveMinimum"] == 0 else 1e-9)
    if "exclusiveMaximum" in schema:
        yield schema["exclusiveMaximum"] - 1e-9
    if schema.get("null"):
        yield None


def place(way: Way) -> str:
    return ".".join(map(str, way))


CASES = {
    f"{place(way)}: {value}": (way, value)
    for way, schema in numbers(SCHEMA)
    for value in at_bounds(schema)
    if not (value is None and place(way) in BESIDE)
}
SPECIAL = {
    **{f"{n}: {v}": (("engine", "args", n), v) for n in ("max_model_len", "max_num_seqs") for v in (-1, "auto", "32K", None)},
    **{f"max_num_batched_tokens: {v}": (("engine", "args", "max_num_batched_tokens"), v) for v in ("25.6k", 8192.0, "9999999T", "9" * 400)},
    "block_size: text": (("engine", "args", "block_size"), "16"),
    "block_size: not a number": (("engine", "args", "block_size"), float("nan")),
    "rates: whole": (("phase_a", "rates_per_s", 0), 1),
}  # fmt: skip

# Of those the ones that vLLM would not take either, or no file could hold.
REFUSED = {
    *(f"max_num_batched_tokens: {v}" for v in ("9999999T", "9" * 400)),
    "block_size: not a number",
    *(f"engine.args.block_size: {v}" for v in (-(2**63), 2**63 - 1)),
}
DEMO = yaml.safe_load((ROOT / "config" / "demo.yaml").read_text())
COSTS = yaml.safe_load((ROOT / "config" / "engine_model.yaml").read_text())["engine"]
GPU = {"gpu": "h200", "kv_cache_bytes": 10**9}
GPU |= {"step": {"base_us": 1, "per_prefill_token_us": 1, "per_decode_seq_us": 1, "per_context_token_us": 1}}


def config_with(way: Way, value: Any) -> dict[str, Any]:
    """The demo with every part that a campaign can have, and ``value`` in one place."""
    config: dict[str, Any] = deepcopy(DEMO)
    config["engine"] = {**config["engine"], "args": {}}
    config["phase_a"] = {"rates_per_s": [2], "input_tokens": 64, "output_tokens": 8}
    config["phase_b"] = {"input_tokens": [64], "output_tokens": [8]}
    config["phase_b_prime"] = {"configs": ["plain"], "shapes": [[64, 8]]}
    config["phase_d"] = {"cached_tokens": [1000], "running": [1], "warmup_s": 0.1, "duration_s": 0.1}
    config["cell"] = {**config["cell"], "warmup_s": 0.1, "duration_s": 0.1, "min_completed": 6}
    config["connectors"] = ["plain", "noop_connector"]
    if way[:2] == ("engine", "virtual_gpu"):
        config["engine"] |= {"kind": "virtual_gpu", "python": sys.executable, "virtual_gpu": deepcopy(GPU)}
        del config["engine"]["model_file"]
    if way[:2] == ("engine", "costs"):
        config["engine"] |= {"kind": "vllm", "python": sys.executable, "costs": deepcopy(COSTS)}
    if way[:2] == ("engine", "gpus"):
        config["engine"]["gpus"] = [5, 7]
    for other, wanted in BESIDE.get(place(way), {}).items():
        put(config, tuple(other.split(".")), wanted)
    put(config, way, value)
    return config


def put(config: dict[str, Any], way: Way, value: Any) -> None:
    inner: Any = config
    for step in way[:-1]:
        inner = inner.setdefault(step, {}) if isinstance(inner, dict) else inner[int(step)]
    last = int(way[-1]) if isinstance(inner, list) else way[-1]
    inner[last] = deepcopy(value)


@pytest.mark.parametrize("name", [*CASES, *SPECIAL])
def test_what_the_config_takes_the_analysis_reads(name: str) -> None:
    way, value = {**CASES, **SPECIAL}[name]
    try:
        config = parse_campaign(config_with(way, value), where="c.yaml")
    except ConfigError as error:
        beyond = value in (HUGE_INT, HUGE_FLOAT, -HUGE_INT, -HUGE_FLOAT)
        assert name in REFUSED or beyond or (place(way), value) in EXCLUDED, error
        return
    written = read_again(campaign_document(config, date=DATE, created_utc=f"{DATE}T00:00:00Z"))
    assert config_of(document_of(written, CampaignDocument, "campaign.json")) == config
    for rates in reference_rates(config):
        given = document_of(rates, ReferenceRatesFile, "reference_rates.json").rates
        for phase in config.phases:
            for spec in cells_of(config, "plain", phase, None if phase == "a" else given):
                cell_of(cell_document(spec), "cell.json")
    lengths = {str(s.input_tokens): 0.1 for s in cells_of(config, "plain", "a")}
    status = {"configs": {"plain": {"decision": "include", "prompt_s": lengths}}}
    document_of(status, PreflightStatus, "preflight_status.json")


def read_again(document: Any) -> Any:
    return parse_json(to_json(document).encode())


def reference_rates(config: CampaignConfig) -> Iterator[Any]:
    """The highest that can come out of Phase A, and the lowest of a shape."""
    rates = config.phase_a_rates_per_s
    for rate, fraction in ((max(rates), 1.0), (min(rates), 2.0**-SMALLEST_FRACTION)):
        shapes = {str(config.phase_a_shape): {"rate_per_s": rate * fraction}}
        found = {"ref_safe_per_s": rate, "ref_load_per_s": rate, "b_prime_needed": True}
        yield read_again({**found, "flags": [], "shapes": shapes, "load_shapes": shapes})


def cell_document(spec: CellSpec) -> Any:
    """``cell.json`` as far as the config decides it."""
    length_ns = round(1e9 * (spec.warmup_s + spec.max_cell_s + spec.drain_timeout_s))
    document = read_json(ROOT / "tests" / "data" / "documents" / "cell.json")
    document |= {"phase": spec.phase, "cell_id": spec.cell_id, "spec": spec.to_json()}
    document["window"]["drained_ns"] = 10**18 + length_ns
    if (tokens := spec.cached_tokens) is not None:
        lengths = dict.fromkeys(("prompts", "primed_tokens", "computed_tokens"), tokens)
        document["cache"] = {
            **lengths,
            "longest_prompt": 2048,
            "block_size": 16,
            "kv_blocks": None,
            "counters": {},
        }
    return read_again(document)
