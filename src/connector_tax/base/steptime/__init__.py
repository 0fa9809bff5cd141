"""Step records: reading what the engine's processes wrote, cutting a cell's share out of it, and the recorder's switch; the clock's."""

from connector_tax.base.steptime.columns import HookLists, StepColumns, read_step_columns
from connector_tax.base.steptime.heard import unheard
from connector_tax.base.steptime.raw import headers_of
from connector_tax.base.steptime.share import (
    NO_RECORD,
    StepCount,
    clock_health,
    count_steps,
    cut,
    cut_clock,
    recording,
    stand_ins,
)

__all__ = [
    "NO_RECORD",
    "HookLists",
    "StepColumns",
    "StepCount",
    "clock_health",
    "count_steps",
    "cut",
    "cut_clock",
    "headers_of",
    "read_step_columns",
    "recording",
    "stand_ins",
    "unheard",
]
