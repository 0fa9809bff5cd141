"""The embedded engine's step records: one file for its scheduler, one for the worker it would have."""

import os
import time
from pathlib import Path
from typing import TextIO

from connector_tax.base.clock import read_clock_pair
from connector_tax.base.steptime.writer import header_line, step_line, worker_line
from connector_tax.base.vllm_model.costs import ConnectorCosts, EngineCosts
from connector_tax.base.vllm_model.model import StepResult


class StepLog:
    """Buffers rows and writes them out every ``flush_s`` and at the end."""

    def __init__(
        self,
        path: Path,
        costs: EngineCosts,
        connector: ConnectorCosts,
        *,
        has_connector: bool,
        flush_s: float,
    ) -> None:
        self._costs = costs
        self._connector = connector
        self._has_connector = has_connector
        self._flush_s = flush_s
        self._pid = os.getpid()
        self._step_id = 0
        self._previous_t_ns: int | None = None
        self._flushed = time.monotonic()
        self._scheduler = self._open(path, "scheduler")
        self._worker = self._open(path, "worker") if has_connector else None

    def _open(self, path: Path, process: str) -> TextIO:
        own = path.with_name(f"{path.stem}.{process}.{self._pid}.jsonl")
        file = open(own, "a", encoding="utf-8")  # noqa: SIM115 - open for the life of the server
        clock = read_clock_pair()
        file.write(
            header_line(
                process=process,
                pid=self._pid,
                monotonic_ns=clock.monotonic_ns,
                utc_ns=clock.utc_ns,
                engine_version="embedded-engine",
                # No connector changes one: its tax has no part that is a setting.
                settings={
                    "scheduler_config.max_num_seqs": self._costs.max_num_seqs,
                    "cache_config.block_size": self._costs.block_size,
                    "cache_config.num_gpu_blocks": self._costs.kv_blocks,
                },
            )
        )
        file.flush()
        return file

    def step(self, t_ns: int, result: StepResult) -> None:
        self._step_id += 1
        self._scheduler.write(
            step_line(
                pid=self._pid,
                step_id=self._step_id,
                t_ns=t_ns,
                duration_ns=result.duration_ns,
                previous_t_ns=self._previous_t_ns,
                schedule_us=self._costs.schedule_us + result.build_meta_us,
                update_us=self._costs.update_us,
                build_meta_us=result.build_meta_us,
                num_running=result.num_running,
                num_waiting=result.num_waiting,
                prefill_tokens=result.prefill_tokens,
                decode_tokens=result.decode_tokens,
            )
        )
        self._previous_t_ns = t_ns
        if self._worker is not None:
            self._worker.write(
                worker_line(
                    pid=self._pid,
                    step_id=self._step_id,
                    t_ns=t_ns + round(self._costs.schedule_us * 1000),
                    span_us=result.duration_ns / 1e3 - self._costs.schedule_us - self._costs.update_us,
                    start_load_kv_us=self._connector.start_load_kv_us,
                    get_finished_us=self._connector.get_finished_us,
                )
            )

    def flush_if_due(self) -> None:
        if time.monotonic() - self._flushed >= self._flush_s:
            self.flush()

    def flush(self) -> None:
        self._flushed = time.monotonic()
        self._scheduler.flush()
        if self._worker is not None:
            self._worker.flush()
