"""Service level objectives: text -> limits, and what a request or a cell is held against.

A *request's* limit (``ttft=500ms``) says whether that request counts as good, and makes goodput. A *cell's*
limit (``ttft_p90=500ms``) says whether a server holds a rate.
"""

import re

import msgspec
import numpy as np

from connector_tax.base.documents.load import RequestLimit
from connector_tax.base.errors import ConfigError
from connector_tax.base.files import shown

_UNITS_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0}
# Neither a percentile nor a time is 0.
_ABOVE_0 = r"(?=[0.]*[1-9])"
_TIME = rf"={_ABOVE_0}(?P<time>[0-9]{{1,12}}(\.[0-9]{{1,12}})?)(?P<unit>us|ms|s)"
_OF_A_REQUEST = re.compile(r"(?P<metric>ttft|tpot|e2e)" + _TIME)
_OF_A_CELL = re.compile(
    rf"(?P<metric>ttft|tpot|itl|e2e)_p(?P<q>{_ABOVE_0}[0-9]{{1,2}}(\.[0-9]{{1,3}})?)" + _TIME
)


def percentile_name(q: float) -> str:
    """``p99.99999``: the shortest digits that say which one it is, never another one."""
    return f"p{np.format_float_positional(q, trim='-')}"


class CellLimit(msgspec.Struct, frozen=True):
    """A cell holds it if percentile ``q`` of its latencies is at most this."""

    metric: str
    q: float
    limit_ms: float

    def __str__(self) -> str:
        return f"{self.metric}_{percentile_name(self.q)} <= {self.limit_ms:g} ms"


def parse_goodput(text: str) -> tuple[RequestLimit, ...]:
    """``"ttft=500ms,tpot=50ms"``.

    Raises:
        ConfigError: no such limits.
    """
    wanted = "ttft, tpot or e2e with a time and its unit, each once: ttft=500ms,tpot=50ms"
    found = _limits("--goodput", text, _OF_A_REQUEST, wanted)
    return tuple(RequestLimit(match["metric"], limit_ms) for match, limit_ms in found)


def parse_slo(text: str) -> tuple[CellLimit, ...]:
    """``"ttft_p90=500ms,tpot_p90=50ms"``.

    Raises:
        ConfigError: no such limits.
    """
    wanted = (
        "percentiles of ttft, tpot, itl or e2e with a time and its unit, each once:"
        " ttft_p90=500ms,tpot_p90=50ms"
    )
    found = _limits("--slo", text, _OF_A_CELL, wanted)
    return tuple(CellLimit(match["metric"], float(match["q"]), limit_ms) for match, limit_ms in found)


def _limits(
    option: str, text: str, pattern: re.Pattern[str], wanted: str
) -> list[tuple[re.Match[str], float]]:
    found: dict[str, tuple[re.Match[str], float]] = {}
    for part in map(str.strip, text.split(",")):
        match, name = pattern.fullmatch(part), part.partition("=")[0]
        if match is None or name in found:
            raise ConfigError(f"{option} {shown(text)}: {part!r} is no such limit. Give {wanted}.")
        found[name] = match, float(match["time"]) * _UNITS_MS[match["unit"]]
    return list(found.values())
