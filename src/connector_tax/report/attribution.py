"""Where the microseconds go, as tables: one per configuration."""

from collections.abc import Mapping
from typing import Any

from connector_tax.figures.lookup import Aggregate, in_order, interval, label_of, mapping, number, rows
from connector_tax.figures.words import clean, share_text
from connector_tax.report.mechanism import mechanism
from connector_tax.report.tax_text import OF_ONE_LAUNCH

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
        "share": ""
        if share is None or share.covers_zero
        else f"{share_text(share)} of the difference is spent in hooks",
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
                "cpu": "–" if h.get("cpu_us_per_step") is None else _us(h.get("cpu_us_per_step")),
                "cpu_n": "" if h.get("cpu_us_per_step") is None else _steps(h.get("n_cpu_steps")),
            }
            for h in hooks[:MAX_HOOKS]
        ],
        "others": max(0, len(hooks) - MAX_HOOKS),
    }


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
    ends = ["∞" if end is None else f"{end:+,.1f}" for end in (found.low, found.high)]
    return f"{found.point:+,.1f} [{ends[0]}, {ends[1]}]"
