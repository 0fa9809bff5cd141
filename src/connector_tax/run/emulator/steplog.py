"""Writes the embedded engine's step records: one file for its scheduler, one for the worker it would have."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from connector_tax.base.records.host import EngineCosts
from connector_tax.base.steptime.writer import SchedulerRow, WorkerRow, header_line
from connector_tax.base.timer import read_clock_pair
from connector_tax.base.vllm_model.costs import ConnectorCosts, Member
from connector_tax.base.vllm_model.model import StepResult

# A modelled engine's steps as step timing's rows.


@dataclass(frozen=True, slots=True)
class Modelled:
    """Whose steps they are.

    Attributes:
        members: costs of each member of the connector; none for plain, which has no worker rows.
    """

    pid: int
    engine: EngineCosts
    members: tuple[ConnectorCosts, ...]

    def rows(
        self, step_id: int, t_ns: int, previous_t_ns: int | None, result: StepResult
    ) -> Iterator[SchedulerRow | WorkerRow]:
        """Yield the scheduler's row of one step, then the worker's."""
        build_us = [m.build_meta_us for m in self.members] or [0.0]
        # The cost per cached block belongs to the member that has it.
        by_blocks = next((k for k, m in enumerate(self.members) if m.per_cached_block_us), 0)
        build_us[by_blocks] = result.build_meta_us - sum(
            us for k, us in enumerate(build_us) if k != by_blocks
        )
        yield SchedulerRow(
            pid=self.pid,
            step_id=step_id,
            t_ns=t_ns,
            duration_ns=result.duration_ns,
            previous_t_ns=previous_t_ns,
            schedule_us=self.engine.schedule_us + result.build_meta_us,
            update_us=self.engine.update_us,
            build_meta_us=build_us,
            num_running=result.num_running,
            num_waiting=result.num_waiting,
            prefill_tokens=result.prefill_tokens,
            decode_tokens=result.decode_tokens,
        )
        if self.members:
            yield WorkerRow(
                pid=self.pid,
                step_id=step_id,
                t_ns=t_ns + round(self.engine.schedule_us * 1000),
                span_us=result.duration_ns / 1e3 - self.engine.schedule_us - self.engine.update_us,
                hooks_us=[(m.start_load_kv_us, m.get_finished_us) for m in self.members],
            )


class StepLog:
    """Buffers rows and writes them every ``flush_s`` and at the end."""

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
        process_path = path.with_name(f"{path.stem}.{process}.{self._modelled.pid}.jsonl")
        file = open(process_path, "a", encoding="utf-8")  # noqa: SIM115 - open for the life of the server
        clock = read_clock_pair()
        file.write(
            header_line(
                process=process,
                pid=self._modelled.pid,
                monotonic_ns=clock.monotonic_ns,
                utc_ns=clock.utc_ns,
                engine_version="embedded-engine",
                # No connector changes a setting: no part of a modelled tax is a setting.
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
