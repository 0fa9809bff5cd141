"""Whether an aggregate agrees with itself: each outcome follows from its numbers, each p from its interval, and sums add up.

Everything is worked out here anew, by formulas of the definitions (``docs/measurement.md``); the room ``stats`` is not asked.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from claim_cells import Entry, behind, holds, is_of_b_prime, is_open, sign
from scipy import stats

REPLAYED = re.compile(r"mooncake_both|nixl_\w+")
RANGE = (0.05, 0.10)
DECIDED = ("supported", "refuted")
# Of numbers that are made of others; resamples do not enter a point.
NEAR = 1e-9


def disagreements(a: Mapping[str, Any]) -> Iterator[str]:
    yield from Judged(a).faults()


class Judged:
    """Of one aggregate."""

    def __init__(self, aggregate: Mapping[str, Any]) -> None:
        self.a = aggregate
        self.confidence = float(aggregate["provenance"].get("confidence") or 0.95)
        self.main = {(t["config"], t["reference"], t["metric"]): t for t in aggregate["main_taxes"]}

    def faults(self) -> Iterator[str]:
        for h in self.a["hypotheses"]:
            found = [*self.verdict(h, h), *self.own_tax(h)]
            if h.get("at_equal_host_speed"):
                found += self.verdict(h, h["at_equal_host_speed"])
            yield from (f"Verdicts: {h['id']} of {h['subject']}: {f}" for f in found)
        yield from self.holm()
        yield from (
            f"Taxes: {f}"
            for f in (
                *self.words(),
                *self.counts(),
                *self.parts(),
                *self.load(),
                *self.blocks(),
                *self.drifts(),
                *self.burns(),
            )
        )

    def burns(self) -> Iterator[str]:
        """Which intervals hold what was put in, and how many do; of a virtual GPU, or of the embedded engine's model."""
        model = self.a.get("put_in") or {"taxes": [], "asked": 0, "held": 0}
        of_model = {
            (r["config"], r["metric"], r["rate_per_s"]): r["held"]
            for r in model["taxes"]
            if r["held"] is not None
        }
        if (model["asked"], model["held"]) != (len(of_model), sum(of_model.values())):
            yield f"{model['held']} of {model['asked']} intervals hold the model's tax: {sum(of_model.values())} of {len(of_model)} do"
        for r in model["taxes"]:
            if r["held"] != holds(r["tax"], self.main.get((r["config"], r["reference"], r["metric"]), {})):
                yield f"{r['config']}: its interval is said to hold the model's tax, or not to, and the other is so"
        found = self.a.get("burns")
        if found is None:
            return
        if self.a["provenance"].get("engine_kind") != "virtual_gpu":
            yield "burns are known of a virtual GPU alone"
        told = [holds(e["put_in_us"], e["found"]) for e in found["rows"]]
        if told != [e["held"] for e in found["rows"]]:
            yield "an interval is said to hold what was put in, or not to, and the other is so"
        known = [h for h in told if h is not None]
        if (found["asked"], found["held"]) != (len(known), sum(known)):
            yield f"{found['held']} of {found['asked']} intervals hold what was put in: {sum(known)} of {len(known)} do"
        for e in found["rows"]:
            if (e["put_in_us"] is None) != bool(e["reason"]):
                yield f"{e['config']} has a reason for nothing put in beside what was put in, or neither"

    def counts(self) -> Iterator[str]:
        """Requests behind a TTFT: those of its cells' windows, over blocks of all of them; and behind what is made of taxes."""
        for t in [*self.a["taxes"], *self.a["main_taxes"]]:
            if t["metric"] == "ttft_p90" and t["point"] is not None:
                cells = [(c["config"] == t["config"], c.get("n_window") or 0) for c in behind(self.a, t)]
                own, plain = (sum(n for is_own, n in cells if is_own is side) for side in (True, False))
                if (t["n"], t["n_plain"]) != (own, plain):
                    yield f"{t['n']} and {t['n_plain']} requests of {t['config']} are {own} and {plain}"
        for e in self.a["decomposition"]:
            own, noop = e["config"], "noop_connector"
            flags, less = ([] if e["parts"] != 3 else [f"plain_matched_{c}"] for c in (own, noop))
            of = {"total": [own], "flags": [f"plain_matched_{own}"], "framework": [noop, *less]}
            of["implementation"] = [own, noop, *flags, *less]
            yield from (f"{p}: {f}" for p, who in of.items() for f in self.fewest(e, e[p], who))
        for e in self.a["two_parts"]:
            of = {
                "total": [e["config"]],
                "framework": ["noop_connector"],
                "rest": [e["config"], "noop_connector"],
            }
            yield from (f"{p}: {f}" for p, who in of.items() for f in self.fewest(e, e[p], who))
        for e in self.a["amplification"]:
            if not is_of_b_prime(self.a, e):
                yield from self.fewest(e, e, [e["config"]], ("ref_load", "ref_safe"))

    def fewest(
        self, e: Entry, value: Entry, configs: Sequence[str], references: Sequence[str] = ("ref_safe",)
    ) -> Iterator[str]:
        """The n of a number that is made of these taxes: of those that are there the fewest requests, and 0 of none."""
        main = [self.main.get((c, r, e["metric"])) for c in configs for r in references]
        n = min((t["n"] for t in main if t is not None and t["point"] is not None), default=0)
        if value["point"] is not None and value["n"] != n:
            yield f"{value['n']} requests behind what {e['config']}'s {e['metric']} is made of are {n}"

    # H1 to H6.
    def verdict(self, h: Entry, told: Entry) -> Iterator[str]:
        outcome, label, numbers = (
            str(told["outcome"]),
            str(told.get("label") or ""),
            told.get("numbers") or {},
        )
        if outcome == "not testable":
            yield from self.untestable(h)
            return
        wanted, labels = getattr(self, h["id"].lower())({**h, "sentence": told.get("sentence")}, numbers)
        if outcome != wanted:
            yield f"its numbers say {wanted!r}, and not {outcome!r}"
        if labels is not None and label not in labels:
            yield f"its numbers say {' or '.join(map(repr, labels))}, and not {label!r}"
        if (
            label
            and h["id"] in ("H2", "H3", "H4")
            and label != "additive"
            and label not in str(told["sentence"])
        ):
            yield f"{label!r} is not in its sentence"
        yield from self.p(told)

    def p(self, told: Entry) -> Iterator[str]:
        """None of what is open; else no larger than what the interval leaves, and no smaller than what Holm makes of it."""
        p, adjusted = told.get("p_value"), told.get("p_holm")
        if (told["outcome"] in DECIDED) != (p is not None) or (p is None) != (adjusted is None):
            yield f"p is {p} and Holm's {adjusted} of what is {told['outcome']}"
        elif p is not None and not 0 < p <= 1 - self.confidence + NEAR:
            yield f"p is {p:.3g} beside an interval of {self.confidence:g} that decides"
        elif p is not None and not p - NEAR <= adjusted <= 1:
            yield f"Holm's p is {adjusted:.3g} and p itself {p:.3g}"

    def holm(self) -> Iterator[str]:
        """Of all verdicts that were tested, those that stayed open among them."""
        tests = [h for h in self.a["hypotheses"] if h["outcome"] != "not testable"]
        largest = 0.0
        decided = sorted((h for h in tests if h.get("p_value") is not None), key=lambda h: h["p_value"])
        for rank, h in enumerate(decided):
            largest = max(largest, min(1.0, (len(tests) - rank) * h["p_value"]))
            # Of equal ones any may come first.
            if not _near(h["p_holm"] or 0.0, largest):
                yield f"Verdicts: {h['id']} of {h['subject']}: Holm's p is {h['p_holm']}, and would be {largest:.3g}"

    def own_tax(self, h: Entry) -> Iterator[str]:
        """What a verdict is taken from is the tax that stands."""
        numbers = h.get("numbers") or {}
        named = {
            "tax_ttft_p90": h["subject"],
            "tax_connector": h["subject"],
            "tax_stack": h["subject"],
            "tax_noop": "noop_connector",
        }
        for key, config in named.items():
            tax = self.main.get((config, "ref_safe", "ttft_p90"), {})
            keys = ("point", "low", "high", "n")
            if key in numbers and [numbers[key].get(k) for k in keys] != [tax.get(k) for k in keys]:
                yield f"{key} is not the tax of {config} that stands"

    def h1(self, h: Entry, n: Entry) -> tuple[str, Sequence[str] | None]:
        low, high = n["tax_ttft_p90"]["low"], n["tax_ttft_p90"]["high"]
        outcome = (
            "supported"
            if low is not None and low >= 0.1
            else "refuted"
            if high is not None and high < 0.1
            else "undetermined"
        )
        words = ["coupling"] if outcome == "refuted" and REPLAYED.fullmatch(h["subject"]) else []
        if h["subject"] == "mooncake_both":
            if (high is not None and high < 0.25) or (low is not None and low > 0.6):
                said = re.search(r"differs from plain's by (.*?\])", str(h["sentence"]))
                words.append(f"prior 45 % revised to {said[1] if said else '?'}")
            else:
                words.append(f"prior 45 % {'kept' if 0.25 <= n['tax_ttft_p90']['point'] <= 0.6 else 'open'}")
        return outcome, ["; ".join(words)]

    def h2(self, h: Entry, n: Entry) -> tuple[str, Sequence[str] | None]:
        low, high = n["gap"]["low"], n["gap"]["high"]
        if None not in (low, high) and RANGE[0] <= low and high <= RANGE[1]:
            return "supported", [""]
        if low is not None and low > RANGE[1]:
            return "refuted", ["larger than in the replay"]
        if high is not None and high < RANGE[0]:
            return "refuted", ["inverted" if high < 0 else "smaller"]
        return "undetermined", [""]

    def h3(self, h: Entry, n: Entry) -> tuple[str, Sequence[str] | None]:
        own, noop, share = n["tax_connector"], n["tax_noop"], n["share"]
        if sign(own) < 0 and (share["point"] is not None or not share["reason"]):
            return "no share of a gain", None
        if sign(own) <= 0:
            word = "not known" if is_open(own) else "gain" if sign(own) < 0 else "found"
            said = str(h["label"] or "")
            return "undetermined", [said] if word in said else [f"... {word}"]
        if not _near(share["point"], noop["point"] / own["point"]):
            return "a share of its own taxes", None
        low, high = share["low"], share["high"]
        outcome = (
            "refuted"
            if low is not None and low >= 0.5
            else "supported"
            if high is not None and high < 0.5
            else "undetermined"
        )
        label = {"refuted": "framework-cost-dominated", "undetermined": ""}.get(outcome)
        if label is None:
            label = (
                "implementation-cost-dominated"
                if high < 0.3
                else "mixed"
                if low is not None and low >= 0.3
                else ""
            )
        return outcome, [label]

    def h4(self, h: Entry, n: Entry) -> tuple[str, Sequence[str] | None]:
        whole, total, excess = n["tax_stack"], n["sum_of_parts"], n["excess_over_stack"]
        if not _near(total["point"], sum(p["point"] for p in n["parts"].values())):
            return "a sum of its own parts", None
        if sign(whole) == 0 and (excess["point"] is not None or not excess["reason"]):
            return "no excess over what may be nothing", None
        if sign(whole) and not _near(
            excess["point"], (whole["point"] - total["point"]) / abs(whole["point"])
        ):
            return "an excess of its own taxes", None
        if sign(whole) <= 0:
            word = "not known" if is_open(whole) else "gain" if sign(whole) < 0 else "found"
            said = str(h["label"] or "")
            return "undetermined", [said] if word in said else [f"... {word}"]
        low, high = excess["low"], excess["high"]
        if None not in (low, high) and low >= -0.3 and high <= 0.3:
            return "supported", ["additive"]
        if (low is not None and low > 0.3) or (high is not None and high < -0.3):
            return "refuted", [
                "super-additive: interference" if excess["point"] > 0 else "sub-additive: shared cost"
            ]
        return "undetermined", [""]

    def h5(self, h: Entry, n: Entry) -> tuple[str, Sequence[str] | None]:
        """Every length has a number, each is above the one before, and so is the slope above zero."""
        known = [v["point"] for v in n["by_length"].values() if v["point"] is not None]
        lost = len(known) < len(n["by_length"])
        rising = all(b > a for a, b in pairwise(known))
        slope = sign(n["slope_per_doubling"])
        if slope < 0:
            return "refuted", None
        return "supported" if slope > 0 and rising and not lost else "undetermined", None

    h6 = h5

    def untestable(self, h: Entry) -> Iterator[str]:
        """It names those of which it wants a tax that is not there, and no others."""
        sentence, configs = str(h["sentence"]), self.a["configs"]
        # The plan of a page has one of NIXL's configurations at most; where it has none, the one that H2 was registered for.
        nixl = next((c for c in configs if c.startswith("nixl_")), "nixl_both")
        stacks = {"multi_mooncake_lmcache": ("mooncake_both", "lmcache_only")}
        others = {"H2": (nixl,), "H3": ("noop_connector",), "H4": stacks.get(h["subject"], ())}.get(
            h["id"], ()
        )
        needed = (h["subject"], *others)
        there = {c: self.main.get((c, "ref_safe", "ttft_p90")) for c in needed}
        lacking = [c for c, t in there.items() if t is None or t["point"] is None]
        # Of H5 and H6 a trend is missing and not a tax; the parts of other stacks are known to their configuration alone.
        if h["id"] in ("H5", "H6"):
            lacking = [h["subject"]]
        elif h["id"] == "H4" and not others:
            return
        for config in lacking:
            if re.search(rf"(?:\(|; ){re.escape(config)}: ", sentence) is None:
                yield f"{config}, which it wants, is not named"
        named = {c for c in re.findall(r"(?:\(|; )(\w+): ", sentence) if c in configs or c in needed}
        yield from (f"{c} is named, and has what it wants" for c in sorted(named - set(lacking)) if lacking)
        if not lacking:
            once = ", ".join(c for c in needed if (there[c] or {}).get("blocks") is None)
            over = ", ".join(c for c in needed if (there[c] or {}).get("blocks") is not None)
            if f"of one launch: {once}; over blocks of launches: {over};" not in sentence:
                yield f"one launch is {once}'s, and blocks are {over}'s"

    # What taxes are called and made of.
    def words(self) -> Iterator[str]:
        rows = [*self.a["taxes"], *self.a["main_taxes"], *(t for e in self.a["repeats"] for t in e["taxes"])]
        for t in rows:
            told = (
                "unavailable"
                if t["point"] is None
                else "undetermined"
                if is_open(t)
                else ("no_tax_found", "tax", "gain")[sign(t)]
            )
            if t["verdict"] != told:
                yield f"{t['verdict']!r} of {t['config']} is {told!r}"

    def parts(self) -> Iterator[str]:
        for e in self.a["decomposition"]:
            wanted = (
                ("flags", "framework", "implementation")
                if e["parts"] == 3
                else ("framework", "implementation")
            )
            yield from self._adds_up(e, e["total"], [e[p] for p in wanted] if e["parts"] else [])
            main = self.main.get((e["config"], "ref_safe", e["metric"]), {})
            if e["total"]["point"] != main.get("point"):
                yield f"what {e['config']} is made of is not its tax of {e['metric']}"
            noop = self.main.get(("noop_connector", "ref_safe", e["metric"]), {})
            if e["parts"] != 3 and e["framework"]["point"] != noop.get("point"):
                yield f"the framework's part of {e['config']} is not the no-op connector's whole tax"
        for e in self.a["two_parts"]:
            yield from self._adds_up(
                e, e["total"], [e["framework"], e["rest"]] if e["rest"]["point"] is not None else []
            )
        for e in self.a["attribution"]:
            parts = e["parts"] if all(p["point"] is not None for p in e["parts"]) else []
            yield from self._adds_up(e | {"metric": "a step"}, e["difference_us"], parts)

    @staticmethod
    def _adds_up(e: Entry, whole: Entry, parts: Sequence[Entry]) -> Iterator[str]:
        if parts and not _near(sum(p["point"] for p in parts), whole["point"]):
            yield f"parts of {e['config']} do not add up to its {e['metric']}"
        for p in (whole, *parts):
            if p["point"] is not None and not (p["low"] is None or p["low"] <= p["point"] + NEAR) & (
                p["high"] is None or p["point"] <= p["high"] + NEAR
            ):
                yield f"a number of {e['config']}'s {e['metric']} lies outside of its interval"

    def load(self) -> Iterator[str]:
        for e in self.a["amplification"]:
            load, safe = (
                self.main.get((e["config"], r, e["metric"]), {}).get("point")
                for r in ("ref_load", "ref_safe")
            )
            if is_of_b_prime(self.a, e):
                same = ("config", "metric", "input_tokens", "output_tokens")
                load, safe = (
                    next(
                        (
                            t["point"]
                            for t in self.a["taxes"]
                            if t["phase"] == p and all(t[k] == e[k] for k in same)
                        ),
                        None,
                    )
                    for p in ("b_prime", "b")
                )
            if e["point"] is not None and (None in (load, safe) or not _near(e["point"], load - safe)):
                yield f"what load adds to {e['config']}'s {e['metric']} is not its tax at ref_load less that at ref_safe"

    # Over blocks.
    def blocks(self) -> Iterator[str]:
        references = self.a["reference_rates"] or {}
        for e in self.a["repeats"]:
            names = [r for r in ("ref_safe", "ref_load") if references.get(f"{r}_per_s") == e["rate_per_s"]]
            for t in e["taxes"]:
                for main in (self.main.get((t["config"], r, e["metric"])) for r in names):
                    if main is None or [main[k] for k in ("point", "low", "high", "blocks")] != [
                        t[k] for k in ("point", "low", "high", "n")
                    ]:
                        yield f"{t['config']}'s {e['metric']} over blocks is not the one that stands"
                yield from self._of_blocks(t)
            yield from self._four_of_five(e)

    def _of_blocks(self, t: Entry) -> Iterator[str]:
        """Mean and Student's t of its own blocks."""
        logs = [math.log1p(v) for v in t["by_block"].values()]
        mean, n = sum(logs) / len(logs), len(logs)
        sd = math.sqrt(sum((v - mean) ** 2 for v in logs) / (n - 1))
        reach = float(stats.t.isf((1 - self.confidence) / 2, n - 1)) * sd / math.sqrt(n)
        if n != t["n"] or not all(
            _near(t[k], math.expm1(v))
            for k, v in (("point", mean), ("low", mean - reach), ("high", mean + reach))
        ):
            yield f"{t['config']}'s blocks are not those of its tax"

    def _four_of_five(self, e: Entry) -> Iterator[str]:
        """By the noncentral t, of three quarters of the variance of plain against plain and of its chi-square ends."""
        floor, found = e["noise_floor"], e["noise_floor"].get("found_4_of_5")
        if found is None:
            return
        n, tail = e["blocks"], (1 - self.confidence) / 2
        critical = float(stats.t.isf(tail, n - 1))
        sd = (math.log1p(floor["high"]) - math.log1p(floor["low"])) / 2 / critical * math.sqrt(n * 0.75)
        for key, q in (("low", 1 - tail), ("point", 0.5), ("high", tail)):
            true = sd * math.sqrt((n - 1) / float(stats.chi2.ppf(q, n - 1)))
            power = (
                float(stats.nct.sf(critical, n - 1, math.log1p(found[key]) / (true / math.sqrt(n))))
                if true
                else 0.8
            )
            if abs(power - 0.8) > 1e-4:
                yield f"the {key} of what {n} blocks find in four of five is found in {power:.1%}"

    def drifts(self) -> Iterator[str]:
        lines = [(e["drift"], f"plain's {e['metric']}") for e in self.a["repeats"] if e.get("drift")]
        lines += [(s, s["source"]) for e in self.a["host_drift"] for s in e["sources"]]
        for line, name in lines:
            p, change = line.get("p_value"), line.get("change") or {}
            if (
                p is not None
                and change.get("point") is not None
                and (p < 1 - self.confidence) != (sign(change) != 0)
            ):
                yield f"the drift of {name} has p = {p:.3g} beside [{change['low']:.3g}, {change['high']:.3g}]"


def _near(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9)
