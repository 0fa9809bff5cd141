"""Step records: reading what the engine's processes wrote, and cutting a cell's share out of it."""

from connector_tax.steptime.reader import StepFile, read_step_file
from connector_tax.steptime.share import StepCount, count_steps, cut

__all__ = ["StepCount", "StepFile", "count_steps", "cut", "read_step_file"]
