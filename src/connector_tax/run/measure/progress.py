"""One line per event of a long campaign, on stderr and in ``logs/progress.log``."""

import sys
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import CampaignConfig
from connector_tax.base.plan.duration import expected_left_s
from connector_tax.base.plan.start import cells_there, standing
from connector_tax.base.records.cell import Phase, phase_word
from connector_tax.base.secrets import masked
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
        line = masked(line)
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
        found = standing(self.config, self.folder, self.date)

        def finished(phase: Phase, connector_id: str) -> Collection[str]:
            run = self.folder.run(self.date, connector_id, phase)
            try:
                return cells_there(self.config, run, found.rates)
            except OSError:
                return ()  # on another card a run that begins anew removes its own; no measurement ends for that

        left_s = expected_left_s(self.config, found.left, found.rates, found.ends_at_once, finished=finished)
        runs = sum(len(self.config.members(p)) for p in self.config.phases)
        return runs - sum(map(len, found.left.values())), left_s
