"""A modelled engine's steps as the rows that step timing would write of them."""

from collections.abc import Iterator
from dataclasses import dataclass

from connector_tax.base.steptime.writer import SchedulerRow, WorkerRow
from connector_tax.base.vllm_model.costs import ConnectorCosts, EngineCosts
from connector_tax.base.vllm_model.model import StepResult


@dataclass(frozen=True, slots=True)
class Modelled:
    """Whose steps they are.

    Attributes:
        members: what each of the connector's costs; none for plain, which has no worker's rows.
    """

    pid: int
    engine: EngineCosts
    members: tuple[ConnectorCosts, ...]

    def rows(
        self, step_id: int, t_ns: int, previous_t_ns: int | None, result: StepResult
    ) -> Iterator[SchedulerRow | WorkerRow]:
        """The scheduler's row of one step, then the worker's."""
        build_us = [m.build_meta_us for m in self.members] or [0.0]
        # What goes by the blocks in the cache belongs to whom it was given for.
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
