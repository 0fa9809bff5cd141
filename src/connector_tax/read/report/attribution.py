"""Where the microseconds go, as tables: one per configuration."""

from collections.abc import Mapping
from typing import Any

from connector_tax.read.figures.lookup import Aggregate, in_order, interval, label_of, mapping, number, rows
from connector_tax.read.figures.words import clean, hooks_words, interval_texts
from connector_tax.read.report.hooks import ALL_OF_IT, cpu_us, is_all, wall_us
from connector_tax.read.report.mechanism import mechanism
from connector_tax.read.report.tax_text import OF_ONE_LAUNCH

Text = dict[str, Any]
MAX_HOOKS = 12


def attribution_view(aggregate: Aggregate) -> list[Text]:
    """One entry per configuration, in the campaign's order."""
    return [_one(aggregate, entry) for entry in in_order(aggregate, rows(aggregate.get("attribution")))]


def _one(aggregate: Aggregate, entry: Mapping[str, Any]) -> Text:
    hooks = rows(entry.get("hooks"))
    share = interval(entry.get("in_hooks_share"))
    return {
        "label": label_of(aggregate, str(entry.get("config"))),
        "id": str(entry.get("config")),
        "step": _us(entry.get("step_us")),
        "plain_step": _us(entry.get("plain_step_us")),
        "n": f"{number(entry.get('n_steps')) or 0:,.0f} and {number(entry.get('n_plain_steps')) or 0:,.0f}",
        "difference": _with_range(mapping(entry.get("difference_us"))),
        "kind": OF_ONE_LAUNCH,
        "why": [clean(sentence) for sentence in mechanism(aggregate, entry)],
        "share": "" if share is None or not share.excludes_zero else hooks_words(share, "the difference"),
        "parts": [
            {
                "label": str(p.get("label")),
                "us": _with_range(p),
                "n": f"{_steps(p.get('n'))}, {OF_ONE_LAUNCH}",
            }
            for p in rows(entry.get("parts"))
        ],
        "hooks": [
            {
                "hook": str(h.get("hook")),
                "calls": f"{number(h.get('calls_per_step')) or 0:.2f}",
                "us": _us(h.get("us_per_step")),
                "call": _us(h.get("us_per_call")),
                "token": _us(h.get("us_per_token")),
                "cpu": _cpu(h),
                "cpu_n": "" if h.get("cpu_us_per_step") is None else _steps(h.get("n_cpu_steps")),
            }
            for h in hooks[:MAX_HOOKS]
        ],
        "others": max(0, len(hooks) - MAX_HOOKS),
    }


def _cpu(hook: Mapping[str, Any]) -> str:
    wall, cpu = wall_us(hook), cpu_us(hook)
    return "–" if wall is None or cpu is None else ALL_OF_IT if is_all(wall, cpu) else _us(cpu)


def _us(value: Any) -> str:
    found = number(value)
    return "?" if found is None else f"{found:,.3g}" if abs(found) < 100 else f"{found:,.0f}"


def _steps(value: Any) -> str:
    """Those behind a number; aggregates of earlier versions do not say."""
    found = number(value)
    return "" if found is None else f"n {found:,.0f}"


def _with_range(value: Mapping[str, Any]) -> str:
    found = interval(value)
    if found is None:
        return "not available"
    # Each to the same decimal, since they add up.
    point, *ends = (text.removesuffix(" µs") for text in interval_texts(found, "us", lambda _: 1))
    return f"{point} [{ends[0]}, {ends[1]}]"
