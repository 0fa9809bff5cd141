"""Synthetic campaigns on disk in the pipeline's formats, from a given behaviour of each server.

What the analysis must find is then known.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml
from invented_server import Behaviour, StepLines, cell_window, metrics_lines, requests_of, step_lines

from connector_tax.base.artifacts.cells import open_cell, publish_cell
from connector_tax.base.artifacts.layout import RUN_FILES, CampaignFolder, CellFolder, RunFolder
from connector_tax.base.artifacts.receipts import write_receipt
from connector_tax.base.config import CampaignConfig, parse_campaign
from connector_tax.base.documents.cell import About, cell_of
from connector_tax.base.documents.identity import CodeVersion, EngineIdentity
from connector_tax.base.files import append_lines, to_json, write_json, write_text, write_text_if_changed
from connector_tax.base.plan import campaign_document, cells_of, launch_spec, run_order, spec_hash
from connector_tax.base.records.cell import CellSpec, Phase, is_repeat
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.base.records.rates import ReferenceRates
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.seeds import stream
from connector_tax.base.statistics.cell import summarise_cell
from connector_tax.base.units import NS_PER_S

ROOT = Path(__file__).parents[1]
DATE = "2026-11-20"
UTC_NS = 1_795_000_000 * NS_PER_S
ENGINE: dict[str, Any] = {
    "kind": "vllm",
    "versions": {"python": "3.11.7", "vllm": "0.32.0", "torch": "2.9.0"},
    "packages": [],
    "gpu": ["GPU 0: NVIDIA H20 (UUID: GPU-1)"],
    "host": {"kernel": "6.1", "cpu": "Xeon", "cores": 32, "memory_mib": 262144},
}
IDENTITY = msgspec.convert(ENGINE, EngineIdentity)
CODE = {"connector_tax": "0.1.0", "loadgen_sha256": "abc"}

# A launch's facts about its cells.
ABOUT = About(
    campaign="demo",
    connector="plain",
    phase="a",
    engine=IDENTITY,
    code=msgspec.convert(CODE, CodeVersion),
)

Change = Callable[[list[RequestRecord]], list[RequestRecord]]


@cache
def _shipped(base: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "config" / base).read_text())
    return found


def campaign_config(base: str = "demo.yaml", **sections: Any) -> CampaignConfig:
    """Return a shipped campaign with some keys replaced; mappings are merged one level deep."""
    value = dict(_shipped(base))
    for name, change in sections.items():
        value[name] = {**value.get(name, {}), **change} if isinstance(change, dict) else change
    return parse_campaign(value, where=base)


SMALL: dict[str, Any] = {
    "connectors": ["plain", "noop_connector", "mooncake_both", "nixl_both"],
    "phase_a": {"rates_per_s": [2, 4, 8], "input_tokens": 256, "output_tokens": 16},
    "phase_b": {"input_tokens": [64, 256], "output_tokens": [8, 16]},
    "phase_b_prime": {"configs": ["plain", "mooncake_both"], "shapes": [[64, 16]]},
    "cell": {"warmup_s": 1, "duration_s": 20, "min_completed": 40, "max_cell_s": 40},
    "analysis": {"bootstrap_draws": 400},
}


@dataclass
class Campaign:
    """A campaign folder under construction.

    Attributes:
        behaviours: by configuration; others behave as ``Behaviour()``.
        max_steps: most step records per cell.
        step_lines: (window, behaviour, rng, max_steps) -> lines of a cell's step file.
        host: (time, start of the cell's window) -> ``host`` of a metrics sample, nanoseconds; None: no host.
    """

    root: Path
    config: CampaignConfig = field(default_factory=lambda: campaign_config(**SMALL))
    behaviours: dict[str, Behaviour] = field(default_factory=dict)
    step_timing: bool = True
    max_steps: int = 300
    seed: int = 1
    step_lines: StepLines = field(default_factory=lambda: step_lines)
    host: Callable[[int, int], dict[str, Any]] | None = None

    def __post_init__(self) -> None:
        document = campaign_document(self.config, date=DATE, created_utc=f"{DATE}T00:00:00Z")
        write_json(self.folder.campaign_file, document)
        self.decisions: dict[str, Any] = {c: _decision("include") for c in self.config.connector_ids}
        self._write_preflight()
        self._now_ns = 5 * NS_PER_S

    @property
    def folder(self) -> CampaignFolder:
        return CampaignFolder(self.root)

    def run(self, connector: str, phase: Phase) -> RunFolder:
        return self.folder.run(DATE, connector, phase)

    def skip(self, connector: str, reason: str) -> None:
        """Record that preflight skips the connector, and write the receipts that follow."""
        self.decisions[connector] = _decision("skip", reason)
        self._write_preflight()
        phases: tuple[Phase, ...] = ("a", "b", "b_prime")
        for phase in phases:
            write_receipt(
                self.run(connector, phase), campaign=self.config.campaign, status="skipped", reason=reason
            )

    def measure(
        self,
        connector: str,
        phase: Phase = "a",
        *,
        rates: tuple[float, float] | None = None,
        receipt: bool = True,
        change: Change | None = None,
        **document: Any,
    ) -> list[CellFolder]:
        """Write every cell of one (configuration, phase).

        Args:
            rates: (ref_safe, ref_load), for the phases that need them.
            document: keys of ``cell.json`` to replace.
        """
        specs = cells_of(self.config, connector, phase, ReferenceRates(*rates) if rates else None)
        run = self.run(connector, phase)
        if not specs:
            write_receipt(
                run, campaign=self.config.campaign, status="not_needed", reason="no cells in this phase"
            )
            return []
        folders = [self.cell(connector, s, change=change, **document) for s in specs]
        for name in RUN_FILES:
            write_text(run.path / name, "{}\n")
        if receipt:
            self.receipt(connector, phase)
        return folders

    def receipt(self, connector: str, phase: Phase = "a") -> None:
        run = self.run(connector, phase)
        write_receipt(
            run,
            campaign=self.config.campaign,
            status="measured",
            cell_ids=[c.cell_id for c in run.finished_cells()],
            step_timing_available=self.step_timing,
            engine=IDENTITY,
        )

    def cell(
        self, connector: str, spec: CellSpec, *, change: Change | None = None, **document: Any
    ) -> CellFolder:
        """Write one finished cell."""
        behaviour = self.behaviours.get(connector, Behaviour())
        has_connector = launch_spec(self.config, connector).has_connector
        if not has_connector:
            behaviour = replace(behaviour, hooks_us=None)
        elif behaviour.hooks_us is None:
            behaviour = replace(behaviour, hooks_us=(0.0, 0.0, 0.0))
        if spec.recorded is False:
            behaviour = self.behaviours.get(f"{connector} unrecorded", behaviour)
        rng = stream(self.seed, connector, spec.phase, spec.cell_id)
        window = cell_window(self._now_ns, spec, behaviour)
        requests, waiting = requests_of(spec, window, behaviour, rng)
        if change is not None:
            requests = change(requests)
        folder = self.run(connector, spec.phase).cell(spec.cell_id)
        temporary = open_cell(folder)
        append_lines(temporary.metrics, metrics_lines(window, waiting, self.host, spec.concurrency or 1))
        if self.step_timing and spec.recorded is not False:
            lines = self.step_lines(window, behaviour, rng, self.max_steps)
            append_lines(temporary.engine_step, lines)
        value = {
            "schema": 1,
            "campaign": self.config.campaign,
            "connector": connector,
            "phase": spec.phase,
            "launch": msgspec.to_builtins(launch_spec(self.config, connector)),
            "engine": ENGINE,
            "code": CODE,
            "attempt": 1,
            "spec_hash": spec_hash(self.config, connector, spec),
            "cell_id": spec.cell_id,
            "spec": spec.to_json(),
            "window": window.to_json(),
            "clock": {"monotonic_ns": self._now_ns, "utc_ns": UTC_NS + self._now_ns},
            "health": {},
            "verdict": "valid",
            "reasons": [],
            "flags": [],
            "prefix_cache_hits_delta": 0.0,
            "cpu": {"loaded_s": {}, "elapsed_s": 0.0, "idle_share": {}, "spinning": [], "rss_mib": {}},
            "summary": msgspec.to_builtins(summarise_cell(spec, window, requests)),
            "files": {},
            **document,
        }
        publish_cell(folder, requests, cell_of(value, "the cell that a test wants"))
        self._now_ns = window.drained_ns + NS_PER_S
        return folder

    def measure_everything(self) -> dict[str, Any]:
        """Write Phase A, reference rates, Phases B and B' and repeats of everything that is not skipped."""
        from connector_tax.read.ingest import read_campaign
        from connector_tax.read.stats.reference import select_reference_rates

        included = [c for c in self.config.connector_ids if self.decisions[c]["decision"] == "include"]
        members = {
            phase: [c for c in self.config.members(phase) if c in (*included, PLAIN_AGAIN)] for phase in "ab"
        }
        for connector in members["a"]:
            self.measure(connector, "a")
        rates = select_reference_rates(read_campaign(self.root, phases=("a",), steps=False))
        write_text_if_changed(self.folder.reference_rates, to_json(rates))
        pair = (rates.ref_safe_per_s, rates.ref_load_per_s)
        for connector in members["b"]:
            self.measure(connector, "b", rates=pair)
        for connector in included:
            if rates.b_prime_needed:
                self.measure(connector, "b_prime", rates=pair)
        for block in filter(is_repeat, self.config.phases):
            for connector in run_order(self.config, block):
                if connector in (*included, PLAIN_AGAIN):
                    self.measure(connector, block, rates=pair)
        return rates

    def _write_preflight(self) -> None:
        write_json(
            self.folder.preflight_status,
            {
                "schema": 1,
                "step_timing_available": self.step_timing,
                "step_timing_reason": None if self.step_timing else "the patch does not fit this release",
                "engine": ENGINE["versions"],
                "configs": self.decisions,
            },
        )


def reseal(folder: CellFolder) -> None:
    """Rewrite the checksums of ``cell.json``, so that they do not reveal a planted fault."""
    from connector_tax.base.artifacts.cells import file_entry, read_cell

    document = read_cell(folder)
    files = {name: file_entry(folder.path / name) for name in document.files}
    write_json(folder.cell_json, msgspec.structs.replace(document, files=files))


def fail(every: int, status: str = "timeout") -> Change:
    """Let every n-th request fail."""

    def change(requests: list[RequestRecord]) -> list[RequestRecord]:
        return [
            replace(r, status=status, t_first_token_ns=None, t_last_token_ns=None)  # type: ignore[arg-type]
            if r.seq % every == 0
            else r
            for r in requests
        ]

    return change


def _decision(word: str, reason: str | None = None) -> dict[str, Any]:
    install = "pip install it" if reason else None
    return {"decision": word, "reason": reason, "install": install, "launch_hash": "h", "checked": []}
