"""How much a tax grew since another check of the same connector: the main branch's document against today's
numbers."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from connector_tax.base.errors import ConfigError
from connector_tax.base.files import read_document, shown
from connector_tax.base.statistics.mover import independent_difference
from connector_tax.check.document import Check, Growth, Seen
from connector_tax.check.request import STEP
from connector_tax.virtual_time import Bounds, Interval, VirtualTime

# (1.96 + 0.84) / 1.96: a growth of so many reaches of its interval is seen four times in five, of few starts
# oftener.
FOUR_IN_FIVE = 1.43


def read_baseline(path: Path) -> Check:
    """
    Raises:
        ArtifactError: it is no document of ``check --json``.
        ConfigError: it has no tax in virtual time.
    """
    baseline = read_document(path, Check)
    if not baseline.found.virtual_time:
        raise ConfigError(
            f"--baseline {path}: has no tax in virtual time (verdict {baseline.verdict.code}). Give a check"
            " that came to one."
        )
    return baseline


def refuse_another(baseline: Check, now: Mapping[str, Any]) -> None:
    """
    Raises:
        ConfigError: the baseline is of another connector, release or load; names the first key that differs.
    """
    launched = baseline.found.launched
    then = {
        "connector.kv_transfer_config": baseline.connector.kv_transfer_config,
        "model": baseline.model,
        "gpu": baseline.gpu,
        "engine_args": baseline.engine_args,
        "versions.vllm": launched and launched.versions.get("vllm"),
        "scheduling": [v.scheduling for v in baseline.found.virtual_time],
        **_load(baseline.found.virtual_time[0]),
    }
    for key, value in now.items():
        if then[key] != value:
            raise ConfigError(
                f"--baseline: {key} is {shown(then[key])} there and {shown(value)} here. Give a check that"
                " was asked for the same."
            )


def growth_of(baseline: Check, now: VirtualTime) -> Iterator[Growth]:
    """Yield CPU of a step, then each latency that both have.

    Raises:
        ConfigError: as ``refuse_another``.
    """
    then = next((v for v in baseline.found.virtual_time if v.scheduling == now.scheduling), None)
    refuse_another(baseline, _load(now) if then else {"scheduling": [now.scheduling]})
    assert then is not None, "refused"
    # Plain is the control: what it takes a step says how fast either host was.
    own, today = (v.engine_us_per_step["plain"].point for v in (then, now))
    speed = own / today if own and today else 1.0

    def growth(metric: str, us: Interval, ratio: Interval | None) -> Growth:
        seen: Seen = "not_known"
        if us.low is not None and us.high is not None:
            seen = "grew" if us.low > 0 else "shrank" if us.high < 0 else "no_change"
        could_see = None if us.low is None or us.point is None else FOUR_IN_FIVE * (us.point - us.low)
        return Growth(now.scheduling, metric, seen, us, ratio, speed, could_see)

    us = _change(then.step_us, now.step_us, speed)
    yield growth(STEP, us, of_plains_step(us, now))
    before = {t.metric: t for t in then.taxes}
    for tax in now.taxes:
        if (old := before.get(tax.metric)) is not None:
            us = _change(old.difference_us, tax.difference_us, speed)
            yield growth(tax.metric, us, _change(old.ratio, tax.ratio, speed))


def of_plains_step(us: Interval, now: VirtualTime) -> Interval:
    """Microseconds a step as a share of the CPU time of plain's."""
    plain_us = now.engine_us_per_step["plain"].point
    ends = (us.point, us.low, us.high)
    return Interval(*(None if v is None or not plain_us else v / plain_us for v in ends))


def _load(v: VirtualTime) -> dict[str, float]:
    found = {name: getattr(v, name) for name in ("rate_per_s", "input_tokens", "output_tokens")}
    return {**found, "requests of a start": v.requests // v.starts}


def _change(then: Bounds, now: Bounds, speed: float) -> Interval:
    """``now - then``; its interval holds whether or not what the connector computes follows the host's speed
    as plain does."""
    first, second = msgspec.structs.astuple(then.charged), msgspec.structs.astuple(now.charged)
    point = second[0] - first[0]
    if None in (*first, *second):
        return Interval(point, None, None)
    ends: Any = [
        independent_difference(first, (k * second[0], k * second[1], k * second[2])) for k in (1.0, speed)
    ]
    return Interval(point, min(low for _, low, _ in ends), max(high for *_, high in ends))
