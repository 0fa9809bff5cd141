"""A comparison in virtual time, as it is written down: intervals are 95 % over pairs of engine starts."""

import msgspec


class Interval(msgspec.Struct, frozen=True):
    """An estimate and its interval; ``low`` and ``high`` are None where there are too few starts."""

    point: float | None
    low: float | None
    high: float | None


class Bounds(msgspec.Struct, frozen=True):
    """Two readings of one cell: an engine's thread may or may not wait for what other threads do.

    Attributes:
        charged: the engine's thread, and other Python threads while it waits for them.
        with_others: the same, plus all that other Python threads of the process spent.
    """

    charged: Interval
    with_others: Interval


class Tax(msgspec.Struct, frozen=True):
    """One metric of the connector over plain's.

    Attributes:
        metric: ``ttft_p50``, ``ttft_p90`` (phase averaged), ``ttft_p90_raw``, ``tpot_p50``, ``tpot_p90``.
        ratio: less one, so 0.01 is a tax of 1 %.
    """

    metric: str
    plain_ms: float
    connector_ms: float
    ratio: Bounds
    difference_us: Bounds


class HookCpu(msgspec.Struct, frozen=True):
    """CPU time of one connector hook, with the null hook's subtracted.

    Attributes:
        side: ``scheduler`` or ``worker``.
        hook: its name; of a connector's child ``0:NixlConnector/get_finished``.
        in_virtual_time: False where its wall time far exceeds its charge: it waits for what takes no CPU time
            here.
    """

    side: str
    hook: str
    calls_per_step: float
    cpu_us_per_step: Interval
    wall_us_per_step: float
    in_virtual_time: bool


class VirtualTime(msgspec.Struct, frozen=True, omit_defaults=True):
    """One connector against plain, in one way of scheduling.

    Attributes:
        scheduling: ``sync`` or ``async``.
        starts: pairs of engines that were started.
        requests: of all starts of one side.
        engine_us_per_step: CPU of the engine's thread, under ``plain`` and ``connector``.
        others_us_per_step: CPU of the process's other Python threads.
        waits_per_step: how often the engine's thread waited for another thread.
        step_us: the connector's step less plain's.
        null_hook_us: what a wrapped hook that does nothing costs, observer included.
        unseen_us: how long the connector's thread was off its core in a step beyond what plain's was beside
            it: a disk, a socket, another process.
        died: of what an engine of a later start died, which is not among ``starts``.
        work_ratio: reference work beside the connector over that beside plain, less one: how alike the core's
            speed was; ``wide_work_ratio``: of a work that does not fit into the core's own caches.
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
