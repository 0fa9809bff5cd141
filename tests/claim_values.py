"""What a number on a page can be: every value of ``aggregate.json``, and the few that a page works out of several."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import median
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
        return low is not None and high is not None and (low > 0 or high < 0)

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
    if isinstance(value, Mapping):
        return set().union(*(named_leaves(f"{name}.{k}".lstrip("."), v) for k, v in value.items()))
    shown = (
        ", ".join(map(str, value)) or "none"
        if isinstance(value, list)
        else "unknown"
        if value is None
        else str(value)
    )
    return {" ".join(f"{name.replace('_', ' ')}: {shown}".split())}


def derived(aggregate: Mapping[str, Any]) -> Iterator[Value]:
    """What a page sums, counts and takes the median of, worked out anew from the aggregate."""
    for entry in aggregate["attribution"]:
        for key in ("us_per_step", "cpu_us_per_step"):
            known = [h[key] for h in entry["hooks"] if h[key] is not None]
            yield Value(f"attribution/hooks/{key}", sum(known), "us", None, {"config": entry["config"]})
        # A hook's CPU time ends at its wall time.
        known = [
            min(h["cpu_us_per_step"], h["us_per_step"])
            for h in entry["hooks"]
            if h["cpu_us_per_step"] is not None
        ]
        yield Value("attribution/hooks/cpu", sum(known), "us", None, {"config": entry["config"]})
        yield Value(
            "attribution/hooks", max(0, len(entry["hooks"]) - 12), "count", None, {"config": entry["config"]}
        )
    for cell in aggregate["cells"]:
        yield from _of_processes(cell)
    yield from _of_clocks(aggregate)
    hosts = [c["host"] for c in aggregate["cells"] if c["usable"] and c.get("host")]
    gpus = [h["gpu"] for h in hosts if h.get("gpu")]
    yield Value("cells/host", sum(bool(g["errors"]) for g in gpus), "count", None, {})
    for entry in aggregate["repeats"]:
        slope = (entry.get("host_speed_slope") or {}).get("point")
        if slope is not None:
            facets = {k: entry[k] for k in ("metric", "reference")}
            yield Value("repeats/slope", math.expm1(slope * math.log(1.1)), "ratio", None, facets)
    for entry in aggregate["growth"]:
        for s in entry["slopes"]:
            ends = [
                e
                for e in (s["per_1000_cached_blocks"]["low"], s["per_1000_cached_blocks"]["high"])
                if e is not None
            ]
            most = max([0.01, *map(abs, ends)])
            yield Value("growth/excluded", most, "us", None, {"config": entry["config"]})
        yield Value("growth", sum(len(e["cells"]) for e in aggregate["growth"]), "count", None, {})
    yield Value("cells", len(aggregate["cells"]), "count", None, {})
    yield Value("cells/health", sum(c["usable"] for c in aggregate["cells"]), "count", None, {})
    shapes = {
        (t["config"], t["reference"], t["cell_id"])
        for t in aggregate["taxes"]
        if t["phase"] in ("b", "b_prime")
    }
    yield Value("taxes", len(shapes), "count", None, {})
    for length in {t[k] for t in aggregate["taxes"] for k in ("input_tokens", "output_tokens")}:
        yield Value("lengths", length, "count", None, {})
    for path, facets, group in _groups(aggregate):
        for n in (len(group), *(sum(map(of, group)) for of in SIGNS)):
            yield Value(path, n, "count", None, facets)


def _of_processes(cell: Mapping[str, Any]) -> Iterator[Value]:
    cpu = cell.get("cpu") or {}
    own = {"config": cell["config"], "phase": cell["phase"], "cell_id": cell["cell_id"]}
    loaded = {k: s / cpu["elapsed_s"] for k, s in (cpu.get("loaded_s") or {}).items() if cpu.get("elapsed_s")}
    for table in (loaded, cpu.get("idle_share") or {}, cpu.get("rss_mib") or {}):
        for value in (*table.values(), sum(table.values())):
            yield Value("cells/cpu", value, "number", None, own)


def _of_clocks(aggregate: Mapping[str, Any]) -> Iterator[Value]:
    """Per configuration, and over all of them."""
    clocks = [
        (c["config"], k)
        for c in aggregate["cells"]
        if c["usable"] and (k := (c.get("health") or {}).get("device_clock"))
    ]
    for config in {None, *(c for c, _ in clocks)}:
        own = [k for c, k in clocks if config in (None, c)]
        facets = {} if config is None else {"config": config}
        if own:
            yield Value("cells/health", len(own), "count", None, facets)
            yield Value("cells/health", sum(k["steps"] for k in own), "count", None, facets)
            for name, q in (("lateness_us", "p50"), ("slack_us", "p50")):
                yield Value("cells/health", median(k[name][q] for k in own), "us", None, facets)


SIGNS: tuple[Callable[[Mapping[str, Any]], bool], ...] = (
    lambda v: None not in (v["low"], v["high"]) and v["low"] > 0,
    lambda v: None not in (v["low"], v["high"]) and v["high"] < 0,
    lambda v: None not in (v["low"], v["high"]) and v["low"] <= 0 <= v["high"],
    lambda v: v["point"] is not None and None in (v["low"], v["high"]),
    lambda v: v["point"] is None,
)
NO_NUMBER = {"point": None, "low": None, "high": None}


def _groups(aggregate: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str], list[Mapping[str, Any]]]]:
    """Numbers of connectors that a title counts together: path, facets, the estimates."""
    for key, of, together in (
        ("main_taxes", lambda t: t, ("metric", "reference")),
        ("taxes", lambda t: t, ("metric", "reference", "phase")),
        ("decomposition", lambda t: t["total"], ("metric",)),
        ("attribution", lambda t: t["difference_us"], ()),
    ):
        found: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
        for row in aggregate[key]:
            if of(row)["point"] is not None and not row["config"].startswith(PLAINS):
                found.setdefault(tuple(row[k] for k in together), []).append(of(row))
        for names, group in found.items():
            facets = dict(zip(together, names, strict=True))
            yield key, facets, group
            # Titles about main taxes count connectors without a number, too.
            all_of_them = {c for c in aggregate["configs"] if not c.startswith(PLAINS)}
            if key == "decomposition":
                all_of_them.discard("noop_connector")
            if key in ("main_taxes", "decomposition"):
                yield key, facets, [*group, *[NO_NUMBER] * (len(all_of_them) - len(group))]
    lines = [
        c
        for c in aggregate["cells"]
        if c["phase"] == "a" and c["usable"] and not c["config"].startswith(PLAINS)
    ]
    for n in Counter(c["rate_per_s"] for c in lines).values():
        yield "cells", {}, [{"point": 0, "low": 0, "high": 0}] * n


def _standing(aggregate: Mapping[str, Any], tax: Mapping[str, Any]) -> Mapping[str, Any]:
    """The main tax at the same rate and shape, where there is one."""
    keys = ("config", "metric", "rate_per_s", "input_tokens", "output_tokens")
    alike = (
        m for m in aggregate["main_taxes"] if all(m[k] == tax[k] for k in keys) and m["point"] is not None
    )
    return next(alike, tax)


def pairs(aggregate: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    """``3 of 7``: how many of how many, wherever something is counted."""
    for _, _, group in _groups(aggregate):
        yield from ((sum(map(of, group)), len(group)) for of in SIGNS)
    cells = aggregate["cells"]
    yield from ((n, len(cells)) for n in Counter(f for c in cells for f in c["flags"]).values())
    for config in {c["config"] for c in cells}:
        own = [c for c in cells if c["config"] == config]
        yield sum(c["usable"] for c in own), len(own)
    usable = [c for c in cells if c["usable"]]
    yield sum(c.get("host") is not None for c in usable), len(usable)
    gpus = [c["host"]["gpu"] for c in usable if c.get("host") and c["host"].get("gpu")]
    yield from ((n, len(gpus)) for n in Counter(r for g in gpus for r in g["clock_reasons"]).values())
    # A heatmap is drawn of plain with a connector's settings, too.
    shapes = [
        t
        for t in aggregate["taxes"]
        if (t["phase"], t["metric"], t["reference"]) == ("b", "ttft_p90", "ref_safe") and t["available"]
    ]
    shapes = [_standing(aggregate, t) for t in shapes]
    yield from ((sum(map(of, shapes)), len(shapes)) for of in (*SIGNS, lambda t: bool(t["overloaded"])))
    yield from ((o["n_same"], o["n_prompts"]) for o in aggregate["outputs"])
    for numbers in (
        h["numbers"]["by_length"] for h in aggregate["hypotheses"] if "by_length" in h["numbers"]
    ):
        yield sum(v["point"] is None for v in numbers.values()), len(numbers)
    knees = {c: s["saturation_rate_per_s"] for c, s in aggregate["saturation"].items()}
    first = knees.get("plain") or math.inf
    drawn = {c["config"] for c in usable if c["phase"] == "a"} - {"plain"}
    yield sum(knees.get(c) is not None and knees[c] < first for c in drawn), len(drawn)
