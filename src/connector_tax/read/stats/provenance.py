"""What a campaign was measured with: engine, versions, host, and every setting that shapes a measurement."""

from collections.abc import Mapping
from typing import Any

from connector_tax.base.documents.reading import as_json
from connector_tax.base.plan import document_hash
from connector_tax.read.ingest import CampaignData

# Of the config: names and words, what has a place of its own in ``provenance``, and what the analysis does with the numbers.
ELSEWHERE = ("campaign", "seed", "connectors", "engine", "analysis")
# Of an engine and of a connector: what goes into the hash of each of their cells (``launch_spec``).
ENGINE = ("served_model_name", "extra_args", "env", "model_file", "step_timing", "pin_cpus")
CONNECTOR = ("kv_transfer_config", "extra_args", "env", "matches")


def provenance(data: CampaignData) -> dict[str, Any]:
    """``provenance`` in ``aggregate.json``: of the newest cell, and of the campaign."""
    cells = data.cells()
    newest = as_json(max(cells, key=lambda c: c.document.clock.utc_ns).document) if cells else {}
    engine = newest.get("engine", {})
    config = data.document["config"]
    return {
        "engine_kind": config["engine"]["kind"],
        "model": config["engine"]["model"],
        "engine_args": config["engine"]["args"],
        "arrival": config["cell"]["arrival"],
        "versions": engine.get("versions", {}),
        "gpu": engine.get("gpu", []),
        **({"virtual_gpu": engine["virtual_gpu"]} if "virtual_gpu" in engine else {}),
        "host": engine.get("host", {}),
        "code": newest.get("code", {}),
        "settings": _settings(config),
        "config_hash": document_hash(data.document),
        "order": as_json(data.document.order),
        "seed": config["seed"],
        "created_utc": data.document["created_utc"],
        "confidence": config["analysis"]["confidence"],
        "bootstrap_draws": config["analysis"]["bootstrap_draws"],
    }


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """By their names in the config, whichever there are, so that two campaigns can be compared by name.

    Args:
        config: of ``campaign.json``.
    """
    return {
        **{name: value for name, value in config.items() if name not in ELSEWHERE},
        "engine": _of(config["engine"], ENGINE),
        "connectors": {c["id"]: _of(c, CONNECTOR) for c in config["connectors"]},
    }


def _of(value: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value[name] for name in names if name in value}
