"""A connector's cost on a clock that counts the engine thread's CPU time: the device and idle waits are
jumps.

One process has one real EngineCore on the virtual GPU (``launch/plugins/virtual_time``). ``engines`` starts
them and has them take turns, ``cells`` runs them on pairs of them, ``estimate`` makes ratios and intervals of
the cells, ``result`` is what comes out.
"""

from connector_tax.virtual_time.cells import Load, Measured, measure_many
from connector_tax.virtual_time.engines import EngineSpec
from connector_tax.virtual_time.estimate import compare
from connector_tax.virtual_time.result import Bounds, HookCpu, Interval, Tax, VirtualTime
