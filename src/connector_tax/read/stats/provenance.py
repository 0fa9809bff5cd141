"""Collects a campaign's conditions: engine, versions, host, and every setting of the measurement."""

import math
from collections import Counter

import msgspec

from connector_tax.base.documents.aggregate import Provenance
from connector_tax.base.files import as_json
from connector_tax.base.plan import document_hash
from connector_tax.base.records.bounds import Foreign
from connector_tax.read.ingest import CampaignData

# Config keys that are left out: names and words, those with their own place in ``provenance``, and the
# analysis's.
ELSEWHERE = ("campaign", "seed", "connectors", "engine", "analysis")
# The fields of an engine and of a connector that enter the hash of their cells (``launch_spec``).
ENGINE = ("served_model_name", "extra_args", "env", "model_file", "model_sha256", "step_timing", "pin_cpus")
CONNECTOR = ("kv_transfer_config", "extra_args", "env", "matches")


def provenance(data: CampaignData) -> Provenance:
    """Return ``provenance`` of ``aggregate.json``, from the newest cell and the campaign."""
    config = data.config
    cells = data.cells()
    newest = max(cells, key=lambda c: c.document.clock.utc_ns).document if cells else None
    record = Provenance(
        engine_kind=config.engine.kind,
        model=config.engine.model,
        engine_args=config.engine.args,
        arrival=config.cell.arrival,
        settings=settings_of(data.document.config),
        config_hash=document_hash(data.document),
        order=_order(data),
        seed=config.seed,
        created_utc=data.document.created_utc or None,
        confidence=config.analysis.confidence,
        bootstrap_draws=config.analysis.bootstrap_draws,
    )
    if newest is None:
        return record
    cards = _cards(data)
    cards_by_phase = {
        phase: [card for card, phases in cards.items() if phase in phases] for phase in record.order
    }
    return msgspec.structs.replace(
        record,
        versions=newest.engine.known_versions,
        gpu=newest.engine.gpu,
        cards=cards or msgspec.UNSET,
        mixed_cards=tuple(p for p, phase_cards in cards_by_phase.items() if len(phase_cards) > 1)
        if cards
        else msgspec.UNSET,
        side_by_side=_at_once(data) if cards else msgspec.UNSET,
        container=newest.engine.container,
        virtual_gpu=as_json(newest.engine.virtual_gpu) if newest.engine.virtual_gpu else msgspec.UNSET,
        host=newest.engine.host,
        code=as_json(newest.code),
    )


def _order(data: CampaignData) -> dict[str, tuple[str, ...]]:
    """Return the order of each phase as measured, then as drawn; a session begins with plain."""
    begun_ns: dict[tuple[str, str], int] = {}
    for cell in data.cells():
        run = (cell.phase, cell.config)
        begun_ns[run] = min(cell.began_utc_ns, begun_ns.get(run, cell.began_utc_ns))
    return {
        phase: tuple(sorted(drawn, key=lambda c: begun_ns.get((phase, c), math.inf)))
        for phase, drawn in data.document.order.items()
    }


def _cards(data: CampaignData) -> dict[str, tuple[str, ...]]:
    """Return card -> phases measured on it; empty if one engine ran at a time."""
    ran = [(c.document.engine.place, c.phase) for c in data.cells() if c.document.engine.has_slot]
    return {
        card: tuple(p for p in data.document.order if (card, p) in ran)
        for card in sorted({card for card, _ in ran})
    }


def _at_once(data: CampaignData) -> int:
    """Return the largest number of places whose engines had requests at the same time."""
    edges = []
    for cell in data.cells():
        window, engine = cell.window, cell.document.engine
        if engine.has_slot:
            end_ns = cell.began_utc_ns + window.drained_ns - window.t0_ns
            edges += [(cell.began_utc_ns, 1, engine.place), (end_ns, -1, engine.place)]
    engines_at_work: Counter[str] = Counter()
    max_at_once = 0
    for _, change, place in sorted(edges):
        engines_at_work[place] += change
        max_at_once = max(max_at_once, sum(n > 0 for n in engines_at_work.values()))
    return max_at_once


def settings_of(config: Foreign) -> Foreign:
    """Return settings by their names in the config, so that two campaigns can be compared by name.

    Args:
        config: of ``campaign.json``.
    """
    return {
        **{name: value for name, value in config.items() if name not in ELSEWHERE},
        "engine": _picked(config["engine"], ENGINE),
        "connectors": {c["id"]: _picked(c, CONNECTOR) for c in config["connectors"]},
    }


def _picked(value: Foreign, names: tuple[str, ...]) -> Foreign:
    return {name: value[name] for name in names if name in value}
