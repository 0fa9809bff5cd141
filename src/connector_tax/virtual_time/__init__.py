"""A connector's cost on a clock that counts the engine thread's CPU time: the device and idle waits are jumps.

One process has one real EngineCore on the virtual GPU (``launch/plugins/virtual_time``). ``engines`` starts them and has them take turns,
``cells`` runs them on pairs of them, ``estimate`` makes ratios and intervals of the cells, ``result`` is what comes out.
"""

from collections.abc import Callable
from threading import Event

from connector_tax.virtual_time.cells import Load, Measured, measure_many
from connector_tax.virtual_time.engines import EngineSpec
from connector_tax.virtual_time.estimate import compare
from connector_tax.virtual_time.result import Bounds, HookCpu, Interval, Tax, VirtualTime

__all__ = [
    "Bounds",
    "EngineSpec",
    "HookCpu",
    "Interval",
    "Load",
    "Measured",
    "Tax",
    "VirtualTime",
    "compare",
    "measure",
    "measure_many",
]


def measure(
    plain: EngineSpec,
    connector: EngineSpec,
    load: Load,
    *,
    scheduling: str,
    starts: int = 4,
    deadline_s: float | None = None,
    stop: Event | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> VirtualTime:
    """One connector against plain; arguments and errors as of ``measure_many``."""
    found = measure_many(
        [plain, connector],
        load,
        scheduling=scheduling,
        starts=starts,
        deadline_s=deadline_s,
        stop=stop,
        say=say,
    )
    return compare(*found)
