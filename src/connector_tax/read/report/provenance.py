"""What a campaign was measured with, as pairs of a name and a value."""

from collections.abc import Mapping

import msgspec

from connector_tax.base.documents.aggregate import Provenance


def provenance_view(
    provenance: Provenance, campaign: Mapping[str, object], config_hash: str | None
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


def _known(provenance: Provenance) -> Mapping[str, object]:
    """Without a cell nobody knows the host, and an empty list of its GPUs does not say that it has none."""
    found: dict[str, object] = msgspec.to_builtins(provenance)
    return found if provenance.versions or provenance.gpu else {**found, "gpu": None}


def _flat(name: str, value: object) -> list[tuple[str, str]]:
    if isinstance(value, Mapping):
        return [pair for k, v in value.items() for pair in _flat(f"{name}.{k}" if name else str(k), v)]
    if isinstance(value, list | tuple):
        text = ", ".join(str(v) for v in value) if value else "none"
        return [(name, text)] if name else []
    # A setting that is null was not made; of an engine or a host null says that nobody knows.
    nothing = "not set" if name.startswith("settings.") else "unknown"
    return [(name, nothing if value is None else str(value))] if name else []
