"""Failures on demand, for tests.

CONNECTOR_TAX_FAULT holds one or more of these, separated by commas:

    die_at_start      raise while starting, as an engine that cannot run here
    slow_start:S      be ready S seconds late
    compile:S         block for S seconds at the first prompt of each length, as if to compile for it
    die_after:N       exit silently when request N arrives
    die_on_output:N   log it and exit when a request for N tokens arrives
    hang_after:N      stop stepping when request N arrives
    http500:K         answer every K-th request with HTTP 500, and log why
    metrics500:K      answer every K-th /metrics request with HTTP 500
    external_hits:K   count the prompt of every K-th request as found in an external cache
    reset:K           reset the connection in the middle of every K-th answer
    malformed:K       send an event that is not JSON in every K-th answer
    short:K           end every K-th answer one token early
    wrong:K           change the last token of every K-th whole answer
    degraded          log degraded mode, as LMCache does on a device it does not know
    off_after:N       switch the connector off when request N arrives: no look-ups, and hooks take no time
    off_child:I       of a stack, only its I-th connector, from 0
    off_says:WORDS    and write these words to the log
    only_in:FOLDER    only in launches whose files lie in such a folder, for instance phase_b
    spare_preflight   no faults in preflight
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from connector_tax.base.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Faults:
    """Parsed CONNECTOR_TAX_FAULT; 0 means never, and no child is -1."""

    die_at_start: bool = False
    degraded: bool = False
    spare_preflight: bool = False
    slow_start: float = 0.0
    compile: float = 0.0
    die_after: int = 0
    die_on_output: int = 0
    hang_after: int = 0
    http500: int = 0
    metrics500: int = 0
    external_hits: int = 0
    reset: int = 0
    malformed: int = 0
    short: int = 0
    wrong: int = 0
    off_after: int = 0
    off_child: int = -1
    off_says: str = ""
    only_in: str = ""

    def hits(self, name: str, request_number: int) -> bool:
        interval = int(getattr(self, name))
        return interval > 0 and request_number % interval == 0


def parse_faults(text: str, folder: Path = Path()) -> Faults:
    """Parse CONNECTOR_TAX_FAULT.

    Args:
        folder: the launch's folder, which identifies preflight and phases.

    Raises:
        ConfigError: an unknown fault or an invalid number.
    """
    values: dict[str, Any] = {}
    kinds = get_type_hints(Faults)
    for fault_text in filter(None, text.split(",")):
        name, _, value = fault_text.partition(":")
        if name not in kinds:
            raise ConfigError(f"CONNECTOR_TAX_FAULT: unknown fault {name!r}. Known: {', '.join(kinds)}.")
        try:
            values[name] = kinds[name] is bool or kinds[name](value)
        except ValueError as error:
            raise ConfigError(f"CONNECTOR_TAX_FAULT: {fault_text!r}: {value!r} is not a number.") from error
    faults = Faults(**values)
    spared = faults.spare_preflight and "preflight" in folder.parts
    return Faults() if spared or (faults.only_in and faults.only_in not in folder.parts) else faults
