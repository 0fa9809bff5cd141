"""What a campaign was measured with, as pairs of a name and a value."""

from collections.abc import Mapping
from typing import Any


def provenance_view(
    provenance: Mapping[str, Any], campaign: Mapping[str, Any], config_hash: str | None
) -> list[tuple[str, str]]:
    """Flat (name, value) pairs; nested names are joined by a dot."""
    found = _flat("", _known(provenance))
    names = {name for name, _ in found}
    extra: list[tuple[str, str]] = []
    if config_hash and "config_hash" not in names:
        extra.append(("config hash", config_hash))
    if "created_utc" not in names and campaign.get("created_utc"):
        extra.append(("created_utc", str(campaign["created_utc"])))
    if not any(n.startswith("order") for n in names):
        extra += _flat("order", campaign.get("order"))
    if campaign.get("thinned"):
        extra += _flat("thinned", campaign["thinned"])
    return [(name.replace("_", " "), value) for name, value in found + extra]


def _known(provenance: Mapping[str, Any]) -> Mapping[str, Any]:
    """Without a cell nobody knows the host, and an empty list of its GPUs does not say that it has none."""
    return provenance if provenance.get("versions") or provenance.get("gpu") else {**provenance, "gpu": None}


def _flat(name: str, value: Any) -> list[tuple[str, str]]:
    if isinstance(value, Mapping):
        return [pair for k, v in value.items() for pair in _flat(f"{name}.{k}" if name else str(k), v)]
    if isinstance(value, list):
        text = ", ".join(str(v) for v in value) if value else "none"
        return [(name, text)] if name else []
    # A setting that is null was not made; of an engine or a host null says that nobody knows.
    nothing = "not set" if name.startswith("settings.") else "unknown"
    return [(name, nothing if value is None else str(value))] if name else []
