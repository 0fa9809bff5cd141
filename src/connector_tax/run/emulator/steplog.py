"""The embedded engine's step records: one file for its scheduler, one for the worker it would have."""

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from connector_tax.base.clock import read_clock_pair
from connector_tax.base.steptime.writer import WorkerRow, header_line
from connector_tax.base.vllm_model.costs import EngineCosts, Member
from connector_tax.base.vllm_model.model import StepResult
from connector_tax.run.emulator.steprows import Modelled


class StepLog:
    """Buffers rows and writes them out every ``flush_s`` and at the end."""

    def __init__(
        self,
        path: Path,
        costs: EngineCosts,
        members: tuple[Member, ...],
        *,
        flush_s: float,
    ) -> None:
        self._costs = costs
        self._prefixes = [m.prefix for m in members]
        self._modelled = Modelled(os.getpid(), costs, tuple(m.costs for m in members))
        self._flush_s = flush_s
        self._step_id = 0
        self._previous_t_ns: int | None = None
        self._flushed = time.monotonic()
        self._scheduler = self._open(path, "scheduler")
        self._worker = self._open(path, "worker") if members else None

    def _open(self, path: Path, process: str) -> TextIO:
        own = path.with_name(f"{path.stem}.{process}.{self._modelled.pid}.jsonl")
        file = open(own, "a", encoding="utf-8")  # noqa: SIM115 - open for the life of the server
        clock = read_clock_pair()
        file.write(
            header_line(
                process=process,
                pid=self._modelled.pid,
                monotonic_ns=clock.monotonic_ns,
                utc_ns=clock.utc_ns,
                engine_version="embedded-engine",
                # No connector changes one: its tax has no part that is a setting.
                settings={
                    "scheduler_config.max_num_seqs": self._costs.max_num_seqs,
                    "cache_config.block_size": self._costs.block_size,
                    "cache_config.num_gpu_blocks": self._costs.kv_blocks,
                },
                members=self._prefixes or ("",),
            )
        )
        file.flush()
        return file

    def recost(self, members: tuple[Member, ...]) -> None:
        """From the next step on, the same members cost this."""
        self._modelled = replace(self._modelled, members=tuple(m.costs for m in members))

    def step(self, t_ns: int, result: StepResult) -> None:
        self._step_id += 1
        for row in self._modelled.rows(self._step_id, t_ns, self._previous_t_ns, result):
            file = self._worker if isinstance(row, WorkerRow) else self._scheduler
            assert file is not None, "a worker's row has a worker's file"
            file.write(row.line)
        self._previous_t_ns = t_ns

    def flush_if_due(self) -> None:
        if time.monotonic() - self._flushed >= self._flush_s:
            self.flush()

    def flush(self) -> None:
        self._flushed = time.monotonic()
        self._scheduler.flush()
        if self._worker is not None:
            self._worker.flush()
