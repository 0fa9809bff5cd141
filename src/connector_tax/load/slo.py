"""Service level objectives: text -> limits, and what a request or a cell is held against.

A *request's* limit (``ttft=500ms``) says whether that request counts as good, and makes goodput. A *cell's* limit
(``ttft_p90=500ms``) says whether a server holds a rate.
"""

import math
import re

import msgspec
import numpy as np

from connector_tax.base.documents.load import RequestLimit
from connector_tax.base.errors import ConfigError

METRICS = ("ttft", "tpot", "itl", "e2e")
_UNITS_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0}
_TIME = re.compile(r"([0-9]+(?:\.[0-9]+)?)(us|ms|s)")
_PERCENTILE = re.compile(r"p([0-9]{1,2}(?:\.[0-9]{1,3})?)")


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
    limits = []
    for name, limit_ms in _pairs(text, "--goodput", "ttft=500ms,tpot=50ms"):
        if name not in ("ttft", "tpot", "e2e"):
            raise ConfigError(
                f"--goodput {text!r}: {name!r} is no latency of a request. Give ttft, tpot or e2e."
            )
        limits.append(RequestLimit(name, limit_ms))
    return tuple(limits)


def parse_slo(text: str) -> tuple[CellLimit, ...]:
    """``"ttft_p90=500ms,tpot_p90=50ms"``.

    Raises:
        ConfigError: no such limits.
    """
    limits = []
    for name, limit_ms in _pairs(text, "--slo", "ttft_p90=500ms,tpot_p90=50ms"):
        metric, _, percentile = name.partition("_")
        match = _PERCENTILE.fullmatch(percentile)
        if metric not in METRICS or match is None or float(match[1]) == 0:
            raise ConfigError(
                f"--slo {text!r}: {name!r} is no percentile of a latency. Give {', '.join(METRICS)} and which one, as in ttft_p90."
            )
        limits.append(CellLimit(metric, float(match[1]), limit_ms))
    return tuple(limits)


def _pairs(text: str, option: str, example: str) -> list[tuple[str, float]]:
    pairs: list[tuple[str, float]] = []
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        match = _TIME.fullmatch(value.strip())
        if not equals or match is None or not math.isfinite(limit := float(match[1])) or limit == 0:
            raise ConfigError(
                f"{option} {text!r}: {part!r} is no limit. Give times with their unit, such as {example}."
            )
        if name in (known for known, _ in pairs):
            raise ConfigError(f"{option} {text!r}: {name} stands there twice.")
        pairs.append((name, limit * _UNITS_MS[match[2]]))
    return pairs
