"""What many sentences of a page are about: names and rates as they are written, main taxes, who has a tax and who has none."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from claim_cells import PHASES, Cell, Entry, is_open, is_wide, sign
from claim_numbers import estimate, the
from claim_values import PLAINS, Value

NAMES = {"ttft_p90": "TTFT p90", "tpot_p90": "TPOT p90"}


def said(words: Sequence[str], values: Sequence[Value], may: Sequence[str] = ()) -> Cell:
    """A sentence; ``may``: what stands in it on every page where it has a place."""
    return Cell(words, values, may)


def listing(items: Sequence[str], most: int = 99) -> str:
    if len(items) > most:
        return f"{', '.join(items[:most])} and {len(items) - most} more"
    return " and ".join(filter(None, (", ".join(items[:-1]), *items[-1:])))


def short(text: str, limit: int = 40) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


class Told:
    """Of one aggregate; worked out from it alone, ``report`` and ``figures`` are not asked."""

    def __init__(self, aggregate: Mapping[str, Any]) -> None:
        self.a = aggregate
        self.configs = sorted(aggregate.get("configs") or {}, key=lambda c: c != "plain")
        self.labels = {c: str(v.get("label") or c) for c, v in (aggregate.get("configs") or {}).items()}
        self.confidence = the(aggregate["provenance"].get("confidence") or 0.95, "ratio")
        self.alpha = 1 - self.confidence[0].number
        self.rates = {r: aggregate["reference_rates"].get(f"{r}_per_s") for r in ("ref_safe", "ref_load")}

    # Names, rates and rows that many sentences are about.
    def name(self, config: str, limit: int = 40) -> str:
        return short(self.labels.get(config, config), limit)

    def at_rate(self, reference: str, before: str = "at ") -> str:
        rate = self.rates[reference]
        return f"{before}{reference}" + (f" ({rate:g} req/s)" if rate is not None else "")

    def main(self, metric: str, reference: str = "ref_safe") -> dict[str, Entry]:
        """Configuration -> its tax, in the campaign's order."""
        found = {
            t["config"]: t
            for t in self.a["main_taxes"]
            if (t["metric"], t["reference"]) == (metric, reference) and t["point"] is not None
        }
        order = {c: k for k, c in enumerate(self.configs)}
        return {c: found[c] for c in sorted(found, key=lambda c: (order.get(c, len(order)), c))}

    def without_number(self, metric: str, reference: str = "ref_safe") -> list[str]:
        """Connectors of the campaign that have no tax there, in its order."""
        found = self.main(metric, reference)
        return [c for c in self.configs if c not in found and not c.startswith(PLAINS)]

    @staticmethod
    def drawn_of(configs: Collection[str]) -> list[str]:
        """Connectors, or all where there is none."""
        return [c for c in configs if not c.startswith(PLAINS)] or list(configs)

    def not_drawn(self, configs: Collection[str]) -> list[str]:
        if configs and all(c.startswith(PLAINS) for c in configs):
            alone = "plain vLLM with a connector's settings, since no connector has a number."
            return [f"Drawn: {listing(list(configs))}, {alone}"]
        left = [c for c in configs if c not in self.drawn_of(configs)]
        return [f"Not drawn: {listing(left)}, plain vLLM with a connector's settings."] if left else []

    @staticmethod
    def uncounted(configs: Collection[str]) -> list[str]:
        """Of what is drawn beside connectors and is none."""
        return [
            f"The title does not count {c}, plain vLLM with a connector's settings."
            for c in configs
            if c.startswith("plain_matched_")
        ]

    def named(
        self, own: Sequence[str], found: Mapping[str, Entry], unit: str, first: str = "largest"
    ) -> tuple[list[str], list[Value]]:
        """Up to two with their numbers; of more the largest alone has its own."""
        if len(own) > 2:
            words = [f"the {first} {self.name(own[0])},", f"also {listing([self.name(c) for c in own[1:]])}"]
            return words, estimate(found[own[0]], unit)
        return [f"{self.name(c)} with" for c in own], [v for c in own for v in estimate(found[c], unit)]

    def told_apart(
        self,
        found: Mapping[str, Entry],
        unit: str = "ratio",
        above: str = "a tax",
        below: str = "a gain",
        *,
        anyone: bool = False,
        without: Sequence[str] = (),
        beside: str = "",
    ) -> tuple[list[str], list[Value]]:
        """How many of how many lie above zero, below it, and at neither side; of which that is not known, and who has no number.

        Args:
            anyone: launches of plain, too.
            without: connectors that have no number, and count.
            beside: whom the count of all leaves out.
        """
        found = {c: v for c, v in found.items() if anyone or not c.startswith(PLAINS)}
        n, words, values = len(found) + len(without), list[str](), list[Value]()
        if not found:
            return [
                f"none of {n} connectors{beside} has a number"
                if n > 1
                else f"no connector{beside} has a number"
            ], []
        of = [f"connector{'s' if n > 1 else ''}{beside}"] if beside else []
        for word, side in ((above, 1), (below, -1)):
            own = sorted((c for c in found if sign(found[c]) == side), key=lambda c: -side * found[c]["point"])  # fmt: skip
            if own:
                names, numbers = self.named(own, found, unit)
                words += [f"{word} for", *of, *names]
                values += the(len(own)) + the(n) + numbers
        unknown = sorted((c for c in found if is_open(found[c])), key=lambda c: -found[c]["point"])
        wide = [c for c in found if is_wide({**found[c], "unit": unit})]
        wide = sorted(wide, key=lambda c: found[c]["low"] - found[c]["high"])
        neither = [c for c in found if sign(found[c]) == 0 and c not in (*unknown, *wide)]
        others, nothing = bool(wide or unknown or without), "no difference is found for"
        if neither and words:
            one = " one" if len(neither) == 1 else ""
            words.append(f"{nothing}{'' if others else ' the other'}{one}")
            values += [] if one else the(len(neither))
        elif neither and others:
            words += [nothing, *of]
            values += the(len(neither)) + the(n)
        elif neither and n > 1:
            words += [f"{nothing} any of", *of]
            values += the(n)
        elif neither:
            names, values = self.named(neither, found, unit)
            words.append(f"{nothing} {names[0]}")
        for own, first, why in (
            (wide, "widest interval", "not resolved here, since the interval is wider than 100 points, for"),
            (unknown, "largest estimate", "not known, since the interval is open, for"),
        ):
            if own:
                names, numbers = self.named(own, found, unit, first)
                words += [why, *names]
                values += [*(the(len(own)) + the(n) if len(own) > 2 else []), *numbers]
                words += of if len(own) > 2 else []
        if without:
            words.append(f"without a number, {listing([self.name(c) for c in without])}")
            words[-1] = f"one {words[-1]}" if len(without) == 1 else words[-1]
            values += the(len(without)) if len(without) > 1 else []
        return words, values

    @staticmethod
    def launches_behind(chosen: Sequence[Entry]) -> str:
        """Over how many blocks, whose are of one launch, and who stands in for whom."""
        blocks = sorted({t["blocks"] for t in chosen if t.get("blocks") is not None})
        over = {t["config"] for t in chosen if t.get("blocks") is not None}
        once = [t for t in chosen if t.get("blocks") is None]
        if not blocks:
            told = ["Of one launch each: what launches differ by is not in the intervals."]
        else:
            others = sorted({f"{NAMES[t['metric']]} of {t['config']} at {t['reference']}" if t["config"] in over else t["config"] for t in once})  # fmt: skip
            told = [
                f"Over {listing([*map(str, blocks)], 9)} blocks of launches"
                + (f" (one launch: {listing(others, 9)})." if others else ".")
            ]
        instead = {t["config"]: t["phase"] for t in once if t.get("phase") not in ("a", None)}
        if instead:
            named = [f"{c} (phase {PHASES.get(p, p)})" for c, p in sorted(instead.items())]
            told.append(f"Another launch stands in where Phase A has no tax: {listing(named, 9)}.")
        return " ".join(told)
