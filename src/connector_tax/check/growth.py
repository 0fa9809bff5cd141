"""How much a tax grew since another check of the same connector: the main branch's document against today's numbers."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from connector_tax.base.errors import ConfigError
from connector_tax.base.files import read_document, shown
from connector_tax.base.statistics.mover import change
from connector_tax.check.document import Check, Growth, Seen
from connector_tax.virtual_time import Interval, VirtualTime

STEP = "step"
# (1.96 + 0.84) / 1.96: a growth of so many reaches of its interval is seen four times in five, of few starts oftener.
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
            f"--baseline {path}: has no tax in virtual time (verdict {baseline.verdict.code}). Give a check that came to one."
        )
    return baseline


def refuse_another(baseline: Check, now: Mapping[str, Any]) -> None:
    """
    Raises:
        ConfigError: the baseline is of another connector, release or load; names the first key that differs.
    """
    launched, load = baseline.found.launched, baseline.found.virtual_time[0]
    then = {
        "connector.kv_transfer_config": baseline.connector.kv_transfer_config,
        "model": baseline.model,
        "gpu": baseline.gpu,
        "engine_args": baseline.engine_args,
        "versions.vllm": launched.versions.get("vllm") if launched is not None else None,
        "scheduling": [v.scheduling for v in baseline.found.virtual_time],
        **_load(load),
    }
    for key, value in now.items():
        if then[key] != value:
            raise ConfigError(
                f"--baseline: {key} is {shown(then[key])} there and {shown(value)} here. Give a check that was asked for the same."
            )


def growth_of(baseline: Check, now: VirtualTime) -> Iterator[Growth]:
    """Yield CPU of a step, then each latency that both have.

    Raises:
        ConfigError: as ``refuse_another``.
    """
    same = [v for v in baseline.found.virtual_time if v.scheduling == now.scheduling]
    if not same:
        refuse_another(baseline, {"scheduling": [now.scheduling]})
    refuse_another(baseline, _load(now))
    (then,) = same
    # Plain is the control: what it takes a step says how fast either host was.
    speed = _speed(then.engine_us_per_step["plain"], now.engine_us_per_step["plain"])
    us = _change(then.step_us.charged, now.step_us.charged, speed)
    yield Growth(now.scheduling, STEP, _seen(us), us, None, speed, _could_see(us))
    before = {t.metric: t for t in then.taxes}
    for tax in now.taxes:
        if (old := before.get(tax.metric)) is not None:
            us = _change(old.difference_us.charged, tax.difference_us.charged, speed)
            ratio = _change(old.ratio.charged, tax.ratio.charged, speed)
            yield Growth(now.scheduling, tax.metric, _seen(us), us, ratio, speed, _could_see(us))


def _load(v: VirtualTime) -> dict[str, Any]:
    return {
        "rate_per_s": v.rate_per_s,
        "input_tokens": v.input_tokens,
        "output_tokens": v.output_tokens,
        "requests of a start": v.requests // v.starts,
    }


def _speed(then: Interval, now: Interval) -> float:
    return then.point / now.point if then.point and now.point else 1.0


def _change(then: Interval, now: Interval, speed: float) -> Interval:
    """``now - then``; its interval holds whether or not what the connector computes follows the host's speed as plain does."""
    assert then.point is not None and now.point is not None, "a mean of starts"
    first = (then.point, then.low, then.high)
    scaled = [None if x is None else speed * x for x in (now.low, now.high)]
    point, *ends = change(first, (now.point, now.low, now.high))
    _, *others = change(first, (speed * now.point, scaled[0], scaled[1]))
    low, high = (
        None if a is None or b is None else pick(a, b)
        for pick, a, b in zip((min, max), ends, others, strict=True)
    )
    return Interval(point, low, high)


def _seen(us: Interval) -> Seen:
    if us.low is None or us.high is None:
        return "not_known"
    return "grew" if us.low > 0 else "shrank" if us.high < 0 else "no_change"


def _could_see(us: Interval) -> float | None:
    return None if us.low is None or us.point is None else FOUR_IN_FIVE * (us.point - us.low)
