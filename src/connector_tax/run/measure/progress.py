"""One line per event of a long campaign, on stderr and in ``logs/progress.log``."""

import sys
from dataclasses import dataclass
from datetime import UTC, datetime

from connector_tax.base.artifacts.cells import reusable
from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.artifacts.receipts import read_receipt
from connector_tax.base.config import CampaignConfig
from connector_tax.base.documents.preflight import PreflightStatus
from connector_tax.base.documents.rates import ReferenceRatesFile
from connector_tax.base.documents.reading import read_document
from connector_tax.base.errors import ArtifactError
from connector_tax.base.plan import cells_of, spec_hash
from connector_tax.base.plan.duration import expected_left_s
from connector_tax.base.records.cell import CellSpec, Phase, phase_word
from connector_tax.base.records.rates import ReferenceRates
from connector_tax.base.redaction import published_text
from connector_tax.base.units import duration_text
from connector_tax.run.measure.matched import with_matched_launches


@dataclass(frozen=True, slots=True)
class Progress:
    """Tells where the campaign stands; holds no state beside what is on disk."""

    folder: CampaignFolder
    config: CampaignConfig
    date: str
    connector_id: str
    phase: Phase

    def say(self, event: str) -> None:
        """``12:00:01 phase A plain (3 of 24 runs done, about 4 h 10 min left): cell r4_4096x256 ...``"""
        done, left_s = self._standing()
        total = sum(len(self.config.members(p)) for p in self.config.phases)
        line = (
            f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} phase {phase_word(self.phase)} {self.connector_id} "
            f"({done} of {total} runs done, about {duration_text(left_s)} left): {event}"
        )
        line = published_text(line)
        print(line, file=sys.stderr, flush=True)
        log = self.folder.progress_log
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            with open(log, "a", encoding="utf-8", errors="backslashreplace") as lines:
                lines.write(line + "\n")
        except OSError as error:
            # No measurement ends for a line that was said already; on a full disk the next file of results does.
            print(
                f"{log}: this line is not in it, it cannot be written ({error.strerror or error})",
                file=sys.stderr,
                flush=True,
            )

    def _standing(self) -> tuple[int, float]:
        known = self.folder.reference_rates
        rates = read_document(known, ReferenceRatesFile).rates if known.exists() else None
        preflight = read_document(self.folder.preflight_status, PreflightStatus)
        # As they are launched: cells are told by hashes of that.
        config = with_matched_launches(self.config, preflight)
        left = {
            phase: ids
            for phase in config.phases
            if (ids := [c for c in config.members(phase) if not self._ended(config, phase, c, rates)])
        }
        # Rates that lie there before all of Phase A has ended are of an earlier plan.
        now = None if "a" in left else rates
        total = sum(len(config.members(p)) for p in config.phases)
        left_s = expected_left_s(
            config, left, now, preflight.skips, finished=lambda p, c: self._finished(config, p, c, now)
        )
        return total - sum(map(len, left.values())), left_s

    def _ended(
        self, config: CampaignConfig, phase: Phase, connector_id: str, rates: ReferenceRates | None
    ) -> bool:
        """Whether it has a receipt, and that is of the plan as it is now: an edit leaves earlier ones until their runs begin anew."""
        run = self.folder.run(self.date, connector_id, phase)
        if not run.receipt.is_file():
            return False
        try:
            cells = read_receipt(run).cells
        except ArtifactError:
            return True  # status and the analysis say why
        planned = _planned(config, phase, connector_id, rates)
        if not cells or planned is None:
            return True
        # What makes one cell another one makes all of its run so, or is in their names.
        own = planned.get(cells[0].cell_id)
        return {c.cell_id for c in cells} <= planned.keys() and (
            own is not None and spec_hash(config, connector_id, own) == cells[0].spec_hash
        )

    def _finished(
        self, config: CampaignConfig, phase: Phase, connector_id: str, rates: ReferenceRates | None
    ) -> list[str]:
        """Of a run that has not ended."""
        run = self.folder.run(self.date, connector_id, phase)
        planned = _planned(config, phase, connector_id, rates) or {}
        found = [c.cell_id for c in run.finished_cells() if c.cell_id in planned]
        try:
            return [i for i in found if reusable(run.cell(i), spec_hash(config, connector_id, planned[i]))]
        except ArtifactError:
            return []  # whoever measures it says why


def _planned(
    config: CampaignConfig, phase: Phase, connector_id: str, rates: ReferenceRates | None
) -> dict[str, CellSpec] | None:
    """By their ids; None where that needs rates that are not known."""
    if rates is None and phase not in ("a", "d"):
        return None
    return {cell.cell_id: cell for cell in cells_of(config, connector_id, phase, rates)}
