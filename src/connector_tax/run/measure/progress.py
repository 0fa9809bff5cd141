"""One line per event of a long campaign, on stderr and in ``logs/progress.log``."""

import sys
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import CampaignConfig
from connector_tax.base.documents.preflight import PreflightStatus
from connector_tax.base.documents.rates import ReferenceRatesFile
from connector_tax.base.documents.reading import read_document
from connector_tax.base.plan.duration import expected_left_s
from connector_tax.base.plan.ended import cells_there, ends_at_once, has_ended
from connector_tax.base.records.cell import Phase, phase_word
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
        runs = {p: {c: self.folder.run(self.date, c, p) for c in config.members(p)} for p in config.phases}

        def of(phase: Phase, known: ReferenceRates | None) -> list[str]:
            return [c for c, run in runs[phase].items() if not has_ended(config, run, known)]

        of_a = of("a", None)
        # Those that lie there before all of Phase A has ended are of an earlier plan.
        rates = None if of_a else rates
        left = {p: ids for p in config.phases if (ids := of_a if p == "a" else of(p, rates))}

        def finished(phase: Phase, connector_id: str) -> Collection[str]:
            try:
                return cells_there(config, runs[phase][connector_id], rates)
            except OSError:
                return ()  # on another card a run that begins anew removes its own; no measurement ends for that

        skips = ends_at_once(config, self.folder, self.date, preflight, left)
        left_s = expected_left_s(config, left, rates, skips, finished=finished)
        return sum(map(len, runs.values())) - sum(map(len, left.values())), left_s
