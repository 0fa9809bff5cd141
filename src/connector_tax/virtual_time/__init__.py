"""Measures a connector on a virtual clock: it counts the engine thread's CPU time and jumps over the device.

Each process runs one real EngineCore on the virtual GPU (``launch/plugins/virtual_time``). ``engines`` starts
them and interleaves their turns, ``cells`` runs cells on them, ``estimate`` turns cells into ratios with
intervals, ``result`` has the types of the outcome.
"""

from connector_tax.virtual_time.cells import Load, Measured, measure_many
from connector_tax.virtual_time.engines import EngineSpec
from connector_tax.virtual_time.estimate import compare
from connector_tax.virtual_time.result import Bounds, HookCpu, Interval, Tax, VirtualTime
