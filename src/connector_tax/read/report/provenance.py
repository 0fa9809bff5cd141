"""What a campaign was measured with: pairs of a name and a value, the long ones in groups that open."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from connector_tax.base.documents.aggregate import Provenance
from connector_tax.base.documents.campaign import CampaignDocument

CONNECTOR_KEY = re.compile(r"settings\.connectors\.[^.]+\.[^.]+")
# Of each the names that begin with it, where none before it took them; the rest stands on top.
GROUPS = {
    "engine_args": "Engine arguments",
    "virtual_gpu": "Virtual GPU",
    "settings.connectors": "Connectors",
    "settings.engine": "Engine",
    "settings": "Phases and cells",
    "order": "Order of launches",
    "thinned": "From campaign.json: thinned for publication, and checksums of the originals",
}


@dataclass(frozen=True, slots=True)
class ProvenanceGroup:
    """``prefix``: what the names of its rows begin with and leave out; it and ``title`` are empty for what needs no opening."""

    title: str
    prefix: str
    rows: list[tuple[str, str]]


def provenance_groups(provenance: Provenance, campaign: CampaignDocument | None) -> list[ProvenanceGroup]:
    """``provenance_view`` in groups, none of them empty."""
    rows: dict[str, list[tuple[str, str]]] = {"": []}
    for name, value in provenance_view(provenance, campaign):
        prefix = next((p for p in GROUPS if name.startswith(f"{p}.")), "")
        rows.setdefault(prefix, []).append((name.removeprefix(f"{prefix}."), value))
    return [ProvenanceGroup(GROUPS.get(p, ""), p, rows[p]) for p in ("", *GROUPS) if p in rows]


def provenance_view(provenance: Provenance, campaign: CampaignDocument | None) -> list[tuple[str, str]]:
    """Flat (name, value) pairs; nested names are joined by a dot, and are spelled as in the files they come from.

    What a connector is launched with is one value for each of its keys, as its entry in a config has it.

    Args:
        campaign: says when it began and its order, where an aggregate of an earlier version does not; None where there is none.
    """
    found: dict[str, object] = msgspec.to_builtins(provenance)
    if not (provenance.versions or provenance.gpu):
        # Without a cell nobody knows the host, and an empty list of its GPUs does not say that it has none.
        found["gpu"] = None
    if campaign is not None:
        found["order"] = found["order"] or campaign.order
        found["created_utc"] = found["created_utc"] or campaign.created_utc or None
        if campaign.thinned:
            found["thinned"] = msgspec.to_builtins(campaign.thinned)
    found["order"] = _of_the_measured(found["order"], provenance)
    return _flat("", found)


def _of_the_measured(order: object, provenance: Provenance) -> object:
    """The order without those that Phase B' does not ask for: they pass through its step and launch nothing."""
    asked = ((provenance.settings or {}).get("phase_b_prime") or {}).get("configs")
    if not isinstance(order, Mapping) or asked is None:
        return order
    return {
        phase: [c for c in configs if phase != "b_prime" or c in asked] for phase, configs in order.items()
    }


def _flat(name: str, value: object) -> list[tuple[str, str]]:
    if isinstance(value, Mapping) and not CONNECTOR_KEY.fullmatch(name):
        return [pair for k, v in value.items() for pair in _flat(f"{name}.{k}" if name else str(k), v)]
    if isinstance(value, list | tuple):
        text = ", ".join(map(_text, value)) if value else "none"
        return [(name, text)] if name else []
    # A setting that is null was not made; of an engine or a host null says that nobody knows.
    nothing = "not set" if name.startswith("settings.") else "unknown"
    return [(name, nothing if value is None else _text(value))] if name else []


def _text(value: object) -> str:
    """As a config file has it: ``true``, ``{"input_tokens": 64, "output_tokens": 16}``."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
