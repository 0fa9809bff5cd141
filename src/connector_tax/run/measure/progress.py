"""One line per event of a long campaign, on stderr and in ``logs/progress.log``."""

import sys
from dataclasses import dataclass
from datetime import UTC, datetime

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import CampaignConfig
from connector_tax.base.documents.preflight import PreflightStatus
from connector_tax.base.documents.rates import ReferenceRatesFile
from connector_tax.base.documents.reading import read_document
from connector_tax.base.plan.duration import expected_left_s
from connector_tax.base.records.cell import Phase, phase_word
from connector_tax.base.redaction import published_text
from connector_tax.base.units import duration_text


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
        left = {
            phase: ids
            for phase in self.config.phases
            if (ids := [c for c in self.config.members(phase) if not self._ended(phase, c)])
        }
        total = sum(len(self.config.members(p)) for p in self.config.phases)
        left_s = expected_left_s(self.config, left, rates, preflight.skips)
        return total - sum(map(len, left.values())), left_s

    def _ended(self, phase: Phase, connector_id: str) -> bool:
        return self.folder.run(self.date, connector_id, phase).receipt.is_file()
