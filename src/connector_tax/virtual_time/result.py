"""The documents of a comparison in virtual time; intervals are 95 % over pairs of engine starts."""

import msgspec


class Interval(msgspec.Struct, frozen=True):
    """An estimate and its interval; ``low`` and ``high`` are None with too few starts."""

    point: float | None
    low: float | None
    high: float | None


class Bounds(msgspec.Struct, frozen=True):
    """Two values of one quantity: the engine's thread may or may not wait for other threads' work.

    Attributes:
        charged: CPU of the engine's thread, and of other Python threads while it waits for them.
        with_others: the same plus all CPU of other Python threads of the process.
    """

    charged: Interval
    with_others: Interval


class Tax(msgspec.Struct, frozen=True):
    """One metric of the connector relative to plain's.

    Attributes:
        metric: ``ttft_p50``, ``ttft_p90`` (phase averaged), ``ttft_p90_raw``, ``tpot_p50``, ``tpot_p90``.
        ratio: minus one, so 0.01 is a tax of 1 %.
    """

    metric: str
    plain_ms: float
    connector_ms: float
    ratio: Bounds
    difference_us: Bounds


class HookCpu(msgspec.Struct, frozen=True):
    """CPU time of one connector hook, minus the null hook's.

    Attributes:
        side: ``scheduler`` or ``worker``.
        hook: its name; for a child of a multi-connector ``0:NixlConnector/get_finished``.
        in_virtual_time: False if its wall time far exceeds its CPU time: it waits for something that uses no
            CPU in this process.
    """

    side: str
    hook: str
    calls_per_step: float
    cpu_us_per_step: Interval
    wall_us_per_step: float
    in_virtual_time: bool


class VirtualTime(msgspec.Struct, frozen=True, omit_defaults=True):
    """One connector compared with plain, in one scheduling mode.

    Attributes:
        scheduling: ``sync`` or ``async``.
        starts: pairs of engines that were started.
        requests: of one side, over all starts.
        engine_us_per_step: CPU of the engine's thread, under ``plain`` and ``connector``.
        others_us_per_step: CPU of the process's other Python threads.
        waits_per_step: how often the engine's thread waited for another thread.
        step_us: the connector's step minus plain's.
        null_hook_us: cost of a wrapped hook that does nothing, observer included.
        unseen_us: time per step that the connector's thread was off its core beyond plain's: waiting for a
            disk, a socket, another process.
        died: why an engine of a later start died; that start does not count in ``starts``.
        work_ratio: time of a reference computation beside the connector over that beside plain, minus one,
            which shows whether the core's speed was equal; ``wide_work_ratio``: of a computation that exceeds
            the core's own caches.
    """

    scheduling: str
    starts: int
    requests: int
    steps: int
    rate_per_s: float
    input_tokens: int
    output_tokens: int
    taxes: tuple[Tax, ...]
    engine_us_per_step: dict[str, Interval]
    others_us_per_step: dict[str, float]
    waits_per_step: dict[str, float]
    step_us: Bounds
    hooks: tuple[HookCpu, ...]
    null_hook_us: float
    work_ratio: Interval
    wide_work_ratio: Interval
    cpu_s: float
    wall_s: float
    unseen_us: Interval | None = None
    died: str | None = None

    def tax(self, metric: str) -> Tax:
        return next(t for t in self.taxes if t.metric == metric)
