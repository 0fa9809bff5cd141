"""Campaigns of every kind that a page must be true of: sound, damaged, gaining, saturated, small and others.

The builders measure each with known taxes; it is then damaged on disk if need be, and analysed.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
from analysed import aggregate_json
from builders import DATE, SMALL, Campaign, Change, campaign_config, fail
from cache_levels import measure_levels
from invented_server import Behaviour, step_lines
from virtual_gpus import IDENTITY

from connector_tax.base.artifacts.receipts import write_receipt
from connector_tax.base.config.model import PhaseCConfig, SessionFile
from connector_tax.base.files import write_json
from connector_tax.base.plan import campaign_document, cells_of
from connector_tax.base.records.rates import ReferenceRates
from connector_tax.base.steptime.writer import HOOKS
from connector_tax.read.ingest import read_campaign

STACK = "multi_mooncake_lmcache"
CONNECTORS = ["plain", "noop_connector", "mooncake_both", "nixl_both", "lmcache_only", STACK]
PLAIN = Behaviour(noise=0.05, capacity_per_s=6.0)
TAXES = {"noop_connector": 0.03, "mooncake_both": 0.3, "nixl_both": 0.2, "lmcache_only": 0.1, STACK: 0.42}
BLOCKS = {"repeats": 2}
SAFE = "r4_256x16"
Then = Callable[[Campaign], None]


@dataclass(frozen=True)
class Mutation:
    """One campaign.

    Attributes:
        taxes: configuration -> its tax on everything; others have ``TAXES``.
        plain: behaviour of plain; the others behave so with their tax.
        change: of every request record of every cell.
        changes: the same for one connector, or one of its phases (``mooncake_both/r1``).
        then: change of the measured folder.
        told: change of the finished aggregate, for what no builder can measure.
    """

    sections: dict[str, Any] = field(default_factory=dict)
    taxes: dict[str, float] = field(default_factory=dict)
    plain: Behaviour = PLAIN
    behaviours: dict[str, Behaviour] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    change: Change | None = None
    changes: dict[str, Change] = field(default_factory=dict)
    then: Then | None = None
    told: Callable[[dict[str, Any]], None] | None = None

    def made(self, root: Path) -> dict[str, Any]:
        behaviours = {c: self.plain.taxed(t) for c, t in {**TAXES, **self.taxes}.items()}
        behaviours |= {"plain": self.plain, "plain_again": self.plain, **self.behaviours}
        quick = {**SMALL, "connectors": CONNECTORS, "analysis": {"bootstrap_draws": 200}}
        sections = {
            k: {**quick[k], **v} if isinstance(quick.get(k), dict) else v for k, v in self.sections.items()
        }
        config = campaign_config(**{**quick, **sections})
        campaign = _Changed(
            root, config, behaviours, max_steps=60, **{"step_lines": named_hooks, **self.options}
        )
        campaign.change, campaign.changes = self.change, self.changes
        for connector in self.skipped:
            campaign.skip(connector, "its module cannot be imported")
        campaign.measure_everything()
        if self.then is not None:
            self.then(campaign)
        found: dict[str, Any] = aggregate_json(read_campaign(root))
        if self.told is not None:
            self.told(found)
        return found


class _Changed(Campaign):
    change: Change | None = None
    changes: dict[str, Change] = {}  # noqa: RUF012, replaced as a whole

    def cell(self, connector: str, spec: Any, *, change: Change | None = None, **document: Any) -> Any:
        own = self.changes.get(connector) or self.changes.get(f"{connector}/{spec.phase}")
        return super().cell(connector, spec, change=change or own or self.change, **document)


def lost(connector: str, *phases: str, cell_id: str = SAFE) -> Then:
    """Remove a cell's records; without phases, in every phase that has the cell."""

    def then(campaign: Campaign) -> None:
        for phase in phases or campaign.config.phases:
            campaign.run(connector, phase).cell(cell_id).requests.unlink(missing_ok=True)  # type: ignore[arg-type]

    return then


def both(*several: Then) -> Then:
    def then(campaign: Campaign) -> None:
        for one in several:
            one(campaign)

    return then


def gone(*connectors: str) -> Then:
    """Remove all runs of the connectors, as if they had never been launched."""

    def then(campaign: Campaign) -> None:
        for path in [p for c in connectors for p in campaign.root.glob(f"*_{c}")]:
            shutil.rmtree(path)

    return then


def failed(connector: str, phase: str) -> Then:
    def then(campaign: Campaign) -> None:
        run = campaign.run(connector, phase)  # type: ignore[arg-type]
        shutil.rmtree(run.path, ignore_errors=True)
        write_receipt(
            run, campaign=campaign.config.campaign, status="failed", reason="the engine died at start"
        )

    return then


def without_rates(campaign: Campaign) -> None:
    campaign.folder.reference_rates.unlink()


def levels(campaign: Campaign) -> None:
    for connector in ("plain", "nixl_both"):
        measure_levels(campaign, connector)


def talks(campaign: Campaign) -> None:
    rates = json.loads(campaign.folder.reference_rates.read_text())["ref_safe_per_s"]
    campaign.config = msgspec.structs.replace(
        campaign.config,
        phase_c=PhaseCConfig((SessionFile("config/sessions/talk.jsonl", "0" * 64, 3.0),), warmup_s=2.0),
    )
    document = campaign_document(campaign.config, date=DATE, created_utc=f"{DATE}T00:00:00Z")
    write_json(campaign.folder.campaign_file, document)
    for connector in ("plain", "nixl_both"):
        (spec,) = cells_of(campaign.config, connector, "c", ReferenceRates(rates, rates))
        campaign.cell(connector, spec, prefix_cache_hits_delta=1000.0)
        campaign.receipt(connector, "c")


def settings(**changed: dict[str, Any] | None) -> Then:
    """Write ``engine_diff.json``: the settings that each configuration changed; None if unknown."""

    def then(campaign: Campaign) -> None:
        configs = {c: {} for c in campaign.config.connector_ids} | changed
        write_json(campaign.folder.engine_diff, {"schema": 1, "plain": {}, "configs": configs})

    return then


def answers(campaign: Campaign) -> None:
    for connector, token in (("plain", 1), ("nixl_both", 2), ("mooncake_both", 1)):
        outputs = [{"token_ids": [token]}]
        document = {"campaign": campaign.config.campaign, "connector": connector, "outputs": outputs}
        write_json(campaign.run(connector, "a").outputs, document)


def host(t_ns: int, start_ns: int) -> dict[str, Any]:
    """Return a sample of a GPU host that warms up and reports CPU clocks."""
    beat = t_ns // 10**9
    gpu = {
        "sm_mhz": 1980 - t_ns / 6e10,
        "mem_mhz": 2619,
        "temperature_c": 50 + beat / 600,
        "power_w": 400.5,
        "utilisation": 0.9,
    }
    told = {
        **gpu,
        "clock_reasons": ["sw_power_cap"] if beat % 7 == 0 else [],
        "errors": ["power_w: Unknown Error"],
    }
    return {"cpu_ticks": beat * 200, "steal_ticks": beat * 4, "cpu_mhz": [2600, 2601], "gpu": told}


def named_hooks(window: Any, behaviour: Behaviour, rng: Any, most: int) -> list[str]:
    """Return the builders' steps with each hook's name, calls and CPU time, as the recorder writes them."""
    lines = [json.loads(line) for line in step_lines(window, behaviour, rng, most)]
    for line in lines:
        if line["kind"] == "header":
            line["hooks"] = HOOKS[line["process"]]
        else:
            names = ("build_meta_us",) if line["kind"] == "step" else ("start_load_kv_us", "get_finished_us")
            us = [line[name] for name in names] if behaviour.hooks_us else []
            line["hooks"] = [n for v in us for n in (round(v * 1e3), 1)]
            line["hooks_cpu_ns"] = [round(v * 500) for v in us]
    return [json.dumps(line) for line in lines]


def unheard(window: Any, behaviour: Behaviour, rng: Any, most: int) -> list[str]:
    """Drop the worker's rows of a connector whose hooks take 301 us."""
    deaf = behaviour.hooks_us is not None and behaviour.hooks_us[0] == 301.0
    return [line for line in named_hooks(window, behaviour, rng, most) if not (deaf and '"worker' in line)]


def virtual(value: dict[str, Any]) -> None:
    value["source"] = None
    value["provenance"] |= {"engine_kind": "virtual_gpu", "gpu": [], "virtual_gpu": IDENTITY}


def embedded(value: dict[str, Any]) -> None:
    """Add the model's own taxes: Mooncake's intervals miss them, and NIXL's TTFT tax is unknown."""
    value["source"] = None
    value["provenance"] |= {"engine_kind": "emulator", "gpu": [], "versions": {"emulator": True}}
    rows = []
    for t in value["main_taxes"]:
        if t["metric"] in ("ttft_p90", "tpot_p90") and t["reference"] != "neither" and t["low"] is not None:
            tax = t["high"] + 0.07 if t["config"] == "mooncake_both" else (t["low"] + t["high"]) / 2
            known = (t["config"], t["metric"]) != ("nixl_both", "ttft_p90")
            held = t["low"] <= tax <= t["high"] if known else None
            place = {k: t[k] for k in ("config", "metric", "reference", "rate_per_s")}
            rows.append({**place, "tax": tax if known else None, "held": held})
    once = {(r["config"], r["metric"], r["rate_per_s"]): r["held"] for r in rows if r["held"] is not None}
    value["put_in"] = {"launches": 1200, "asked": len(once), "held": sum(once.values()), "taxes": rows}


def gains(**own: float) -> dict[str, float]:
    return dict.fromkeys(TAXES, 0.0) | own


SWITCHED = {"x.y": {"plain": False, "own": True}}
NOTHING = gains()
NOISY = replace(PLAIN, noise=0.6)
FEW = {"cell": {"min_completed": 8, "duration_s": 2, "max_cell_s": 4}}
ONE_RATE = {"phase_a": {"rates_per_s": [4]}}
BURNING = {
    **BLOCKS,
    "connectors": ["plain", "burning_0", "burning_200", "burning_1000"],
    "phase_a": {"rates_per_s": [2]},
    "phase_b_prime": {"configs": [], "shapes": []},
    "engine": {
        "kind": "virtual_gpu",
        "python": "/bin/true",
        "model": "m",
        "model_file": None,
        "virtual_gpu": {"gpu": "h200"},
        "args": {"async_scheduling": False},
    },
}
# The difference of 1 us between these hooks and the injected time is significant: every step takes as long.
BURNT = {
    "burning_0": replace(PLAIN, hooks_us=(5.0, 2.0, 1.0)),
    "burning_200": replace(PLAIN, hooks_us=(206.0, 2.0, 1.0), step_us=9200.0, tpot_ms=10.2),
    "burning_1000": replace(PLAIN, hooks_us=(1005.0, 2.0, 1.0), step_us=10000.0, tpot_ms=11.0),
}
LEVELS = {"cached_tokens": [0, 8000], "running": [1, 4], "output_tokens": 8, "duration_s": 5}

MUTATIONS: dict[str, Mutation] = {
    "sound over blocks": Mutation(BLOCKS),
    "lost cell of a connector": Mutation(then=lost("mooncake_both", "a")),
    "lost cell of plain": Mutation(then=lost("plain", "a")),
    "lost block of plain's second launch": Mutation({"repeats": 3}, then=lost("plain_again", "r1")),
    "every block of a connector lost": Mutation({"repeats": 3}, then=lost("mooncake_both", "r1", "r2", "r3", "b")),
    "everything of a connector lost": Mutation(then=gone("mooncake_both")),
    "no plain": Mutation(then=gone("plain")),
    "nothing but plain": Mutation(skipped=tuple(TAXES)),
    "nothing at all": Mutation(then=gone(*CONNECTORS)),
    "skipped subject": Mutation(skipped=("mooncake_both",)),
    "failed run": Mutation(then=failed("nixl_both", "b")),
    "gains over blocks": Mutation(BLOCKS, taxes=gains(mooncake_both=-0.2, nixl_both=-0.1)),
    "no taxes over blocks": Mutation(BLOCKS, taxes=NOTHING),
    "noise over blocks": Mutation({"repeats": 1}, plain=NOISY, taxes=gains(mooncake_both=0.3)),
    "one connector is noisy": Mutation(
        taxes=gains(nixl_both=0.05, lmcache_only=0.06),
        behaviours={"mooncake_both": replace(NOISY.taxed(0.15), noise=0.9)},
    ),
    "huge taxes": Mutation(taxes=gains(mooncake_both=40.0, nixl_both=9.0)),
    "tiny taxes": Mutation(taxes=gains(mooncake_both=0.0006, nixl_both=0.004), plain=replace(PLAIN, noise=0.0005)),
    "poisson arrivals": Mutation({"cell": {"arrival": "poisson"}}),
    "one-sided intervals over blocks": Mutation(BLOCKS, change=fail(every=11)),
    "requests of plain's block failed": Mutation({"repeats": 3}, changes={"plain/r1": fail(every=7)}),
    "p90 unavailable": Mutation(change=fail(every=7)),
    "few requests": Mutation(FEW),
    "saturated everywhere": Mutation(plain=replace(PLAIN, capacity_per_s=1.2)),
    "one connector saturated over blocks": Mutation(
        BLOCKS, behaviours={"mooncake_both": replace(PLAIN.taxed(0.3), capacity_per_s=3.0)}
    ),
    "one reference rate": Mutation(ONE_RATE, plain=replace(PLAIN, capacity_per_s=1e9)),
    "no step timing": Mutation(options={"step_timing": False}),
    "hooks unheard": Mutation(
        behaviours={"nixl_both": PLAIN.taxed(0.2, hooks_us=(301.0, 20.0, 10.0))}, options={"step_lines": unheard}
    ),
    "observer": Mutation({"observer_effect": True}),
    "host tells": Mutation({"repeats": 3}, options={"host": host}),
    "levels": Mutation({"phase_d": LEVELS}, then=levels),
    "conversations": Mutation(then=talks),
    "matched baseline": Mutation(
        {"connectors": ["plain", "noop_connector", "mooncake_both", "plain_matched_mooncake_both"]},
        taxes={"plain_matched_mooncake_both": 0.2},
        then=settings(mooncake_both=SWITCHED, plain_matched_mooncake_both=SWITCHED),
    ),
    "answers": Mutation(then=answers),
    "virtual GPU": Mutation(BLOCKS, told=virtual),
    "test connectors that burn": Mutation(BURNING, behaviours=BURNT, told=virtual),
    "embedded engine": Mutation(told=embedded),
    "connector that fakes hits": Mutation(
        {"connectors": ["plain", "noop_connector", "decode_bench", "example_connector", "multi_noop_example"], "phase_b_prime": {"configs": [], "shapes": []}},
        taxes={"decode_bench": 0.1, "example_connector": 0.3, "multi_noop_example": 0.35},
    ),
}  # fmt: skip
