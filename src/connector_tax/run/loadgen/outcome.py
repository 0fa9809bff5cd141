"""What workers told, and what a dead one could not tell any more -> a record for every scheduled request."""

from collections.abc import Collection, Mapping
from itertools import count

import msgspec

from connector_tax.base.records.cell import CellSpec, CellWindow
from connector_tax.base.records.request import RequestRecord
from connector_tax.run.loadgen.messages import Ended
from connector_tax.run.workload.arrivals import OFFLINE, OPEN_LOOP
from connector_tax.run.workload.schedulers import Scheduler, Share, scheduler_for


def record_of(ended: Ended, window: CellWindow, worker: int) -> RequestRecord:
    """What a worker said of one request."""
    return RequestRecord(
        seq=ended.seq,
        t_sched_ns=ended.t_sched_ns,
        t_send_ns=ended.t_send_ns,
        t_first_token_ns=ended.t_first_token_ns,
        t_last_token_ns=ended.t_last_token_ns,
        t_end_ns=ended.t_end_ns,
        status=ended.status,
        prompt_tokens=ended.prompt_tokens,
        completion_tokens=ended.completion_tokens,
        inflight_at_send=ended.inflight_at_send,
        worker=worker,
        phase=window.phase_of(ended.t_sched_ns),
        error=ended.error,
        session=ended.session,
        turn=ended.turn,
        resends=ended.resends,
    )


def in_time(ended: Ended, over: tuple[int, str] | None) -> Ended:
    """An answer that came after the drain is a time-out, also where nobody ended it then: the worker was away and read it before it heard
    of that, or the coordinator was, and told nobody.

    Args:
        over: when the drain was over, and what is said of what had not ended by then; None where it was ended before its time.
    """
    came_ns = ended.t_end_ns if ended.came_ns is None else ended.came_ns
    if over is None or ended.status != "ok" or came_ns is None or came_ns <= over[0]:
        return ended
    return msgspec.structs.replace(ended, status="timeout", error=over[1])


def lost_records(
    spec: CellSpec,
    share: Share,
    window: CellWindow,
    *,
    taken: int,
    known: Collection[int],
    reason: str,
) -> list[RequestRecord]:
    """What a dead worker had sent or should have sent, and told nobody about; all of it ``aborted``.

    Args:
        taken: samples it took from its schedule before it died.
        known: ``seq`` of every request that some worker did tell about.
    """
    if _is_known_ahead(spec):
        due = _scheduled(scheduler_for(spec, share), window)
    else:
        # When a closed loop or a conversation would have sent is known to its worker alone; how often, to all.
        told = sum(seq % share.of == share.index for seq in known)
        unknown = (seq for seq in count(share.index, share.of) if seq not in known)
        due = {next(unknown): window.t_stop_ns for _ in range(max(taken - told, 0))}
    return [
        RequestRecord(
            seq=seq,
            t_sched_ns=t_sched_ns,
            t_send_ns=None,
            t_first_token_ns=None,
            t_last_token_ns=None,
            t_end_ns=None,
            status="aborted",
            prompt_tokens=None,
            completion_tokens=None,
            inflight_at_send=0,
            worker=share.index,
            phase=window.phase_of(t_sched_ns),
            error=reason,
        )
        for seq, t_sched_ns in due.items()
        if seq not in known
    ]


def never_sent(
    spec: CellSpec, of: int, window: CellWindow, stopped: Mapping[int, int], known: Collection[int]
) -> list[RequestRecord]:
    """What was due before the cell's end of workers that ended before it; all of it ``aborted``.

    There is some only where workers were told the end too late for all to stop at the same time, or stopped in the middle of a batch.

    Args:
        stopped: when each worker did; it has told of everything that was due before.
    """
    lost: list[RequestRecord] = []
    for index, at_ns in stopped.items():
        early_ms = (window.t_stop_ns - at_ns) / 1e6
        if _is_known_ahead(spec) and (early_ms > 0 or spec.arrival == OFFLINE):
            reason = f"not sent: worker {index} stopped {early_ms:.3f} ms before the last one"
            if spec.arrival == OFFLINE:
                reason = f"not sent: worker {index} was stopped in the middle of the batch"
            lost += lost_records(spec, Share(index, of), window, taken=0, known=known, reason=reason)
    return lost


def _is_known_ahead(spec: CellSpec) -> bool:
    """Whether it was known before the cell when each request would be due: all of an offline batch is at T0."""
    return spec.sessions is None and spec.arrival in (*OPEN_LOOP, OFFLINE)


def _scheduled(scheduler: Scheduler, window: CellWindow) -> dict[int, int]:
    due: dict[int, int] = {}
    while scheduler.next_due_ns() is not None:
        sample = scheduler.take()
        if window.t0_ns + sample.offset_ns >= window.t_stop_ns:
            break
        due[sample.seq] = window.t0_ns + sample.offset_ns
    return due
