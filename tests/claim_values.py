"""What a number on a page can be: every value of ``aggregate.json``; and the texts of it that a page shows as they stand."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

# Texts that the aggregate holds as they stand; the numbers in them are those of logs, names and versions.
TEXTS = {
    *(
        "label",
        "reason",
        "reasons",
        "what",
        "where",
        "install",
        "note",
        "cell_id",
        "config",
        "title",
        "holds",
        "thread",
    ),
    *(
        "process",
        "hook",
        "campaign",
        "date",
        "copies_kv",
        "ttft_is_no_tax",
        "errors",
        "name",
        "profile",
        "sha256",
    ),
    *("stand_ins", "step_timing_reason", "settings", "left_out"),
}
FACETS = ("config", "subject", "metric", "reference", "phase", "cell_id", "id", "hook", "part")
PLAINS = ("plain", "plain_again", "plain_matched_")
# The end of a key -> unit; the nearest key to a number decides.
UNITS = (
    (r"_us$|us_per|per_1000_cached_blocks|per_running_request|difference_us", "us"),
    (r"_ms$", "ms"),
    (r"_per_s$", "rate"),
    (r"^hours$", "hours"),
    (r"^p_value$|^p_holm$", "p"),
    # Differences of taxes.
    (r"^gap$|^slope_per_doubling$", "points"),
    (
        r"share|ratio|^by_block$|^found_4_of_5$|half_width|^confidence$|^threshold$|^tolerance$|^range$|utilisation",
        "ratio",
    ),
)


@dataclass(frozen=True)
class Value:
    """One number of the aggregate.

    Attributes:
        unit: ``ratio``, ``us``, ``ms``, ``rate``, ``count``, ``p`` or ``number``.
        ends: of its interval; None of a number that has none.
        kind: what its interval holds, where the aggregate says it.
    """

    path: str
    number: float
    unit: str
    ends: tuple[float | None, float | None] | None
    facets: Mapping[str, str]
    kind: str | None = None

    @property
    def found(self) -> bool:
        """Told apart from zero."""
        low, high = self.ends or (None, None)
        return (low is not None and low > 0) or (high is not None and high < 0)

    @property
    def of(self) -> str | None:
        """Whose it is."""
        return self.facets.get("config") or self.facets.get("subject")

    @cached_property
    def words(self) -> str:
        return f"{self.path} {' '.join(self.facets.values())}".lower()


def values(aggregate: Mapping[str, Any]) -> list[Value]:
    """All that it holds; ``facets`` are the names of the entries that a number lies in."""
    return [
        *_walked("", aggregate, {}, None, None),
        Value("confidence", aggregate["provenance"]["confidence"], "ratio", None, {}),
    ]


def _walked(
    path: str, value: Any, facets: Mapping[str, str], unit: str | None, kind: str | None
) -> Iterator[Value]:
    if isinstance(value, Mapping):
        facets = {
            **facets,
            **{k: str(v) for k in FACETS if (v := value.get(k)) is not None and not isinstance(v, Mapping)},
        }
        kind = value.get("kind", kind) if isinstance(value.get("kind", kind), str) else kind
        if over := re.fullmatch(r"over (\d+) blocks", kind or ""):
            yield Value(path, int(over[1]), "count", None, facets)
        unit = (
            value.get("unit", unit)
            if value.get("unit") in ("us", "ratio")
            else "number"
            if "unit" in value
            else unit
        )
        if isinstance(value.get("point"), int | float):
            yield Value(path, value["point"], unit or "ratio", (value["low"], value["high"]), facets, kind)
        for key, inner in value.items():
            # The curve of Figure 6 is drawn, and no point of it is written.
            if key in ("point", "low", "high", "schema_version", "cdf"):
                continue
            # Keyed by configuration or by length.
            own = {"config": key} if path in ("saturation", "configs", "engine_diff") else {}
            if path.endswith(("/by_length", "/rates_per_s", "/left_out")) and key.isdigit():
                yield Value(path, int(key), "count", None, facets)
            yield from _walked(
                f"{path}/{key}".lstrip("/"), inner, {**facets, **own}, _unit(key, inner) or unit, kind
            )
    elif isinstance(value, list):
        for k, inner in enumerate(value):
            index = {"index": f"{path}[{k}]"} if "/" not in path else {}
            yield from _walked(path, inner, {**facets, **index}, unit, kind)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        whole = isinstance(value, int) or float(value).is_integer()
        yield Value(path, value, unit or ("count" if whole else "number"), None, facets)
        if unit == "rate" or (whole and unit not in (None, "count")):
            yield Value(path, value, "number", None, facets)


def _unit(key: str, inner: Any) -> str | None:
    if key in ("n", "n_plain", "blocks") or key.startswith("n_"):
        return "count"
    return next((unit for pattern, unit in UNITS if re.search(pattern, key)), None)


def texts(aggregate: Mapping[str, Any]) -> set[str]:
    """Those with a number in them. What a verdict says is none of them: its numbers are looked for."""
    found = set(_texts(aggregate, ""))
    found |= {str(v) for v in leaves(aggregate["provenance"])}
    # Files counted and hours spent are in the aggregate as words alone.
    found |= {str(c["evidence"]) for c in aggregate["criteria"] if c["number"] in (6, 7)}
    found |= {f"Phase {p}" for p in "ABCD"} | {str(v) for v in leaves(aggregate["engine_diff"])}
    return {
        " ".join(t.split())
        for t in found
        if re.search(r"\d", t) and re.search(r"[A-Za-z]|\d[.-]\d+[.-]\d", t)
    }


def _texts(value: Any, key: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for k, inner in value.items():
            yield from _texts(inner, key if key in TEXTS and isinstance(inner, str) else str(k))
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, key)
    elif isinstance(value, str) and key in TEXTS:
        yield value


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from leaves(inner)
        if isinstance(value, list):
            yield ", ".join(map(str, value))
    else:
        yield value


def named_leaves(name: str, value: Any) -> set[str]:
    """``order.a: plain, nixl_both``: provenance is shown as it stands, each value under its name."""
    # A connector's entry is one value for each of its keys.
    if isinstance(value, Mapping) and not (name.startswith("settings.connectors.") and name.count(".") == 3):
        return set().union(*(named_leaves(f"{name}.{k}".lstrip("."), v) for k, v in value.items()))
    one = lambda v: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)  # noqa: E731
    shown = (
        ", ".join(map(one, value)) or "none"
        if isinstance(value, list)
        else ("not set" if name.startswith("settings.") else "unknown")
        if value is None
        else one(value)
    )
    return {" ".join(f"{name}: {shown}".split())}


def lengths(aggregate: Mapping[str, Any]) -> Iterator[Value]:
    """Prompt and output lengths that taxes were measured at."""
    for length in {t[k] for t in aggregate["taxes"] for k in ("input_tokens", "output_tokens")}:
        yield Value("lengths", length, "count", None, {})
