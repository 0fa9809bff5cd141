"""Sentences of a page that are no figure's: whose numbers each has to hold, in which order, and what it may call them.

Counts, signs, the names that a list has and its order are worked out here from the aggregate; ``report`` and ``figures`` are not asked.
"""

import math
import re
from collections import Counter
from collections.abc import Callable

from claim_cells import BETWEEN_HOOKS, SOURCES, Cell, Entry, called_between, holds, is_wide, sign, usable
from claim_head import Head
from claim_numbers import estimate, the
from claim_phrases import phrases
from claim_told import NAMES, listing, said, short
from claim_values import PLAINS, Value
from page_statements import Statement

ELSEWHERE = "The part of the median step that lies elsewhere is no tax by itself: where it is below zero, other parts of the step take less than plain's"
OUTSIDE = (
    "The median step less these hooks is no tax by itself: below zero, hooks are called between steps, or other parts of the step take less "
    "than plain's"
)
WIDE = (
    "Not resolved here: the interval holds zero and is wider than 100 percentage points. connector-tax rehearse --earlier "
    "says, of a campaign with blocks of launches, how large a tax has to be for so many blocks to find it."
)


def place(tax: Entry) -> tuple[object, ...]:
    """What was measured, whichever launch did."""
    return tuple(tax[k] for k in ("config", "metric", "rate_per_s", "input_tokens", "output_tokens"))


class Sentences(Head):
    """Of one aggregate: what the paragraphs of its page say."""

    def faults(self, s: Statement) -> list[str] | None:
        """None where nobody has worked out what the statement says."""
        cell = next((of(s) for pattern, of in self.known() if re.search(pattern, f"{s.section} | {s.text}")), None)  # fmt: skip
        return None if cell is None else list(cell.within(*phrases(s)).faults(s.text))

    def known(self) -> tuple[tuple[str, Callable[[Statement], Cell | None]], ...]:
        return (
            (r"^head banner[^|]*\| The device was a clock", self.clock),
            (r"^head banner[^|]*\| It cannot show", self.not_shown),
            (r"^head banner[^|]*\| Stand-ins for", self.stand_ins),
            (r"^head banner[^|]*\| In its \d", self.kept_time),
            (r"^head banner[^|]*\| Put in:", self.put_in),
            (r"^head banner[^|]*\| (?!The device)", self.source),
            (r"^head headline \| ", self.headline),
            (r"^head flags \| ", self.flag),
            (r"^head \| Connector tax: ", self.first_line),
            (r"^head details \| ", self.details),
            (r"^Taxes \| (Against plain|A connector's own hooks)", self.about),
            (r"^Taxes / At [^|]*\| At", self.at),
            (r"^Taxes / What was put in \| Without a burn:", self.burnt),
            (r"^Outputs \| After", self.asked),
            (r"/ Repeated launches / [^|]*\| (TTFT|TPOT) p90 at ref_\w+, ", self.repeats_title),
            (r"/ Repeated launches / The host over[^|]*\| The host over", self.host_title),
            (r"/ Repeated launches / The host over[^|]*\| Not told by", self.host_unknown),
            (r"/ Repeated launches / (?!The host)[^|]*\| ", self.repeats),
            (r"/ Repeated launches \| .* (has a tax|has no tax) of ", self.failed_blocks),
            (r"/ Where the microseconds go / [^|]*\| \d+ hooks that take less", self.more_hooks),
            (r"/ Where the microseconds go / [^|]*\| Mean step", self.mean_step),
            (r"/ Where the microseconds go / (?![^|]*\| Not here)", self.difference),
            (r"/ Where the microseconds go \| Not here", self.not_split),
            (r"/ What recording costs \| Without a pair", self.unpaired),
            (r"/ What the host did meanwhile \| (CPUs|\d+ of)", self.host),
            (r"/ By cached blocks and running requests \| Phase D", self.growth),
            (r"/ Its \d+ cells, [^|]* \| ", self.growth_cells),
            (r"/ Taxes at every shape ", self.shapes),
            (r"^Configurations \| Plain's second", self.second_launches),
            (r"^Cells / ", self.cells),
        )

    def not_split(self, _: Statement) -> Cell:
        """Whose decoding steps are not split, and why."""
        there = {e["config"] for e in self.a["attribution"]}
        why = {
            t["config"]: t["reason"]
            for t in self.a["taxes"]
            if (t["phase"], t["rate_per_s"], t["metric"]) == ("a", self.rates["ref_safe"], "callback_p50_us")
        }
        lost = [c for c in self.configs if c not in there and not c.startswith(PLAINS)]
        return said(
            [
                "Not here:",
                *(f"{self.labels[c]}: {short(why.get(c) or self.no_number(c), 400)}" for c in lost),
            ],
            (),
        )

    def unpaired(self, s: Statement) -> Cell:
        """Who has no row, and which of its two cells was lost."""
        shown = {e["config"] for e in self.a["observer_effect"]}
        wanted = [c for c in self.configs if c not in shown and (c == "plain" or not c.startswith(PLAINS))]
        words, end = ["Without a pair:"], "_unrecorded"
        for config in wanted:
            own = [c for c in self.a["cells"] if (c["config"], c["phase"]) == (config, "b")]
            pair = {c["cell_id"].removesuffix(end) for c in own if c["cell_id"].endswith(end)}
            lost = [c for c in own if c["cell_id"].removesuffix(end) in pair and not usable(c)]
            told = [f"{c['cell_id']}, {'; '.join(c.get('reasons') or []) or 'not usable'}" for c in lost]
            words.append(f"{self.labels[config]}: {'; '.join(told) or self.absent(config)}")
        return said(words, ())

    def about(self, _: Statement) -> Cell:
        """What the columns of the tables hold, and no column that they do not have."""
        main = [t for t in self.a["main_taxes"] if t["point"] is not None and t["reference"] != "neither"]
        others = self.in_other_tables()
        there = {t["metric"] for t in main} | ({"ttft_p90", "tpot_p90"} if others else set())
        steps, latencies = ("step_p50_us", "callback_p50_us", "unexplained_us"), ("ttft_p90", "tpot_p90")
        hooks = there == {"callback_p50_us"}
        words = [
            "A connector's own hooks, with" if hooks else "Against plain at the same rate and shape, with"
        ]
        counts = "requests with the connector and without" if there & set(latencies) else ""
        counts += (", or steps where a step is timed" if counts else "steps") if there & set(steps) else ""
        words += [f"intervals in brackets; n counts {counts}."]
        words += ["Plain has no number here."] if hooks else []
        words += ["TTFT is the time to"] if "ttft_p90" in there else []
        words += ["TPOT the time per output token"] if "tpot_p90" in there else []
        values = list(self.confidence)
        if there & set(latencies):
            words += ["the value that 90 of 100 requests stay within"]
        if there and not hooks:
            words += ["did not keep up with the rate, the tax holds queueing as well"]
        safe = any(
            (t["metric"], t["reference"]) == ("step_p50_us", "ref_safe") and not t.get("overloaded")
            for t in main
        )
        words += (
            [
                "Near saturation the median step computes prompts as well and no longer decodes alone, even where the engine keeps up"
            ]
            if "step_p50_us" in there
            else []
        )
        words += ["read its column at ref_safe"] if safe else []
        if any(map(is_wide, (*main, *(t for t in others if self.is_judged(t))))):
            words.append(WIDE)
        between = "step_p50_us" in there and called_between(self.a)
        words += [OUTSIDE if between else ELSEWHERE] if "unexplained_us" in there else []
        return said(words, values)

    def in_other_tables(self) -> list[Entry]:
        """Taxes of latencies with a number at shapes, of conversations, and of two launches that measured the same."""
        own = [t for t in self.a["taxes"] if t["metric"] in NAMES]
        stand = {place(t): t for t in self.a["main_taxes"]}
        found = [stand.get(place(t), t) for t in own if t["phase"] in ("b", "b_prime")]
        found += [t for t in own if t["phase"] == "c"]
        both = [{place(t) for t in own if (t["phase"], t["reference"]) == (p, "ref_safe")} for p in "ab"]
        # With blocks their table has both launches.
        twice = set() if self.a["repeats"] else both[0] & both[1]
        found += [t for t in own if t["phase"] in ("a", "b") and place(t) in twice]
        return [t for t in found if t["point"] is not None]

    def is_judged(self, tax: Entry) -> bool:
        """Whether a tax stands where it was measured; else its row has no verdict."""
        whose = ("config", "metric", "reference")
        stand = [t["point"] for t in self.a["main_taxes"] if all(t[k] == tax[k] for k in whose)]
        return not stand or any(p is not None for p in stand)

    def asked(self, _: Statement) -> Cell:
        """How many other launches of plain say whether the engine repeats itself."""
        again = [
            o
            for o in self.a["outputs"]
            if o["config"] in ("plain", "plain_again") and o["verdict"] != "reference"
        ]
        words = (
            ["plain show how" if len(again) > 1 else "plain shows how"]
            if again
            else ["No other launch of plain answered them, so whether the engine repeats itself is not known"]
        )
        return said(["each launch below answered", "at temperature 0", *words], the(len(again) or None))

    # Under *Taxes*.
    def burnt(self, _: Statement) -> Cell:
        """Who burns nothing, and of how many numbers that were put in and found the interval holds it."""
        found = self.a["burns"]
        told = [h for e in found["rows"] if (h := holds(e["put_in_us"], e["found"])) is not None]
        counts = the(sum(told)) + the(len(told)) + self.confidence if told else []
        words = ["intervals of", "hold what was put in."] if told else ["No number was both put in and found."]  # fmt: skip
        return said([f"Without a burn: {self.labels[found['base']]}.", *words], counts)

    def at(self, s: Statement) -> Cell:
        reference = s.text.split()[1].rstrip(",")
        rate = self.rates[reference]
        taxes = [t for t in self.a["main_taxes"] if t["reference"] == reference and t["point"] is not None]
        if not taxes or (reference == "ref_load" and self.rates["ref_safe"] == rate):
            return said(["no table of its own"], ())
        shape = next(iter({(t["input_tokens"], t["output_tokens"]) for t in taxes}), (None, None))
        return said([], (the(rate, "rate") if rate is not None else []) + the(shape[0]) + the(shape[1]))

    def repeats_title(self, s: Statement) -> Cell:
        titles = [
            f"{NAMES[e['metric']]} at {e['reference']}, {e['rate_per_s']:g} req/s, {e['blocks']} blocks"
            for e in self.a["repeats"]
        ]
        return said([next((t for t in titles if t == s.text), titles[0])], ())

    def host_title(self, s: Statement) -> Cell:
        titles = [
            f"The host over {e['n_launches']} launches of plain at {e['reference']}, {e['rate_per_s']:g} req/s"
            for e in self.a["host_drift"]
        ]
        return said([next((t for t in titles if t == s.text), titles[0])], ())

    def host_unknown(self, s: Statement) -> Cell:
        title = s.section.split("The host over")[1]
        (entry,) = (e for e in self.a["host_drift"] if title.endswith(f"at {e['reference']}, {e['rate_per_s']:g} req/s"))  # fmt: skip
        known = {x["source"] for x in entry["sources"]}
        return said([f"{listing([n for n, k in SOURCES.items() if k not in known])}."], ())

    def failed_blocks(self, s: Statement) -> Cell:
        """Who has no tax since requests failed in a block."""
        told = []
        for e in self.a["failed_blocks"]:
            who = (
                "No connector has a tax" if e["config"] == "plain" else f"{self.name(e['config'])} has no tax"
            )
            told.append(
                f"{who} of {NAMES[e['metric']]} at {e['reference']}, {e['rate_per_s']:g} req/s and Phase A's shape: {e['reason']}."
            )
        return said([next((t for t in told if t == s.text), told[0])], ())

    def repeats(self, s: Statement) -> Cell | None:
        title = s.section.split(" / ")[2]
        e = next((e for e in self.a["repeats"] if title.startswith(f"{NAMES[e['metric']]} at {e['reference']}, {e['rate_per_s']:g} req/s")), None)  # fmt: skip
        if e is None:
            return None
        floor, drift, slope = (e.get(k) or {} for k in ("noise_floor", "drift", "host_speed_slope"))
        words, values = [], estimate(floor)
        if values:
            values = [
                *values,
                *the(e["blocks"]),
                *(the(e["requests"]) if e.get("requests") is not None else []),
            ]
            words.append("pairs of launches")
        if values and (least := estimate(floor.get("found_4_of_5"))):
            words += ["such blocks find in four of five campaigns is estimated at"]
            values += the(e["blocks"]) + least
        if values:
            apart = sign(floor) != 0
            words += ["so its second launch is told apart from its first"] if apart else []
        spread = estimate(e.get("between_launches"))
        if spread:
            words.append(
                f"{'Beside that, launches' if values and sign(floor) else 'Launches'} of plain differ by"
            )
        if spread and e["between_launches"]["high"] == 0:
            words[-1] = words[-1].removesuffix(" by") + " by no more than their requests explain"
            spread = []
        elif spread and (e["between_launches"]["point"], e["between_launches"]["low"]) == (0, 0):
            # A number that is its own lower end: at most so much, and perhaps none.
            words[-1] += " up to"
            words.append("perhaps by nothing")
            spread = estimate(e["between_launches"]["high"])
        values += spread
        if change := estimate(drift.get("change")):
            p = drift.get("p_value")
            drifts = p is not None and p < self.alpha
            words.append(f"Plain {'drifts' if drifts else 'does not visibly drift'}:")
            values += change + the(drift.get("hours"), "hours") + the(p, "p")
        if again := estimate(slope, "number"):
            words.append("took the host 10 % longer")
            values += the(math.expm1(slope["point"] * math.log(1.1)), "ratio") + again
            values += estimate(floor.get("at_equal_host_speed"))
        return said(words, values)

    def entry(self, s: Statement) -> Entry:
        title = s.section.split("Where the microseconds go / ")[-1]
        found = (e for e in self.a["attribution"] if title.startswith(f"{self.labels[e['config']]}:"))
        return next(found, self.a["attribution"][0])

    def difference(self, s: Statement) -> Cell | None:
        if " / " not in s.section.partition("Where the microseconds go")[2]:
            return None
        e = self.entry(s)
        share = e.get("in_hooks_share") or {}
        label = f"{self.labels[e['config']]}:"
        words = [
            # A label may end in another's.
            label if s.text.startswith(label) else f"{label} at its beginning",
            "per step, of one launch",
            *self.in_hooks(share, "the difference"),
        ]
        return said(words, estimate(e["difference_us"], "us") + (estimate(share) if sign(share) else []))

    @staticmethod
    def in_hooks(share: Entry, whole: str, hooks: str = "hooks") -> list[str]:
        """More than all of it is no part of it."""
        if not sign(share):
            return []
        if share["point"] <= 1:
            return [f"of {whole} is spent in hooks"]
        less = ", and other parts of the step less than plain's"
        return [f"{hooks} take", f"of {whole}{less if (share['low'] or 0) > 1 else ''}"]

    def more_hooks(self, s: Statement) -> Cell:
        return said((), the(len(self.entry(s)["hooks"]) - 12))

    def mean_step(self, s: Statement) -> Cell:
        e, words = self.entry(s), []
        values = [
            *the(e["step_us"], "us"),
            *the(e["plain_step_us"], "us"),
            *the(e["n_steps"]),
            *the(e["n_plain_steps"]),
        ]
        every = [h for h in e["hooks"] if h.get("us_per_step") is not None]
        hooks = [h for h in every if h["hook"].split("/")[-1] not in BETWEEN_HOOKS]
        # Reading a thread's CPU time takes some itself, so it ends at the wall time.
        cpus = [
            min(h["cpu_us_per_step"], h["us_per_step"]) for h in hooks if h["cpu_us_per_step"] is not None
        ]
        between = sum(h["us_per_step"] for h in every if h not in hooks)
        if cpus:
            wall = sum(h["us_per_step"] for h in hooks)
            dearest = max(hooks, key=lambda h: h["us_per_step"])
            own = dearest.get("cpu_us_per_step")
            words += [f"the dearest of these is {dearest['hook']} with"]
            words += ["at least"] if len(cpus) < len(hooks) and sum(cpus) < wall else []
            values += the(wall, "us") + (the(sum(cpus), "us") if sum(cpus) < wall else [])
            values += the(dearest["us_per_step"], "us")
            values += the(own, "us") if own is not None and own < dearest["us_per_step"] else []
            words += ["all of it"] * (
                (sum(cpus) >= wall) + (own is not None and own >= dearest["us_per_step"])
            )
            words += (
                [
                    "Hooks called between steps take",
                    "more per step, which the column of hooks in the table at ref_safe counts in.",
                ]
                if round(between)
                else []
            )
            values += the(between, "us") if round(between) else []
        plain = self.spinning("plain")
        for (process, thread), share in self.spinning(e["config"]).items():
            if (process, thread) not in plain:
                words.append(f"its thread {thread} of the process {process} takes")
                values += the(share, "ratio")
        late = [self.late_share(c) for c in (e["config"], "plain")]
        if None not in late and late[0] - late[1] > 0.005:  # type: ignore[operator]
            values += the(late[0], "ratio") + the(late[1], "ratio")
        return said(words, values)

    def late_share(self, config: str) -> float | None:
        """Of the cell that the section is about."""
        for c in self.a["cells"]:
            if (c["config"], c["phase"], c["rate_per_s"]) == (config, "a", self.rates["ref_safe"]) and usable(
                c
            ):
                found: float | None = ((c.get("health") or {}).get("device_clock") or {}).get("late_share")
                return found
        return None

    def spinning(self, config: str) -> dict[tuple[str, str], float]:
        return {
            (s["process"], s["thread"]): s.get("share") or 0.0
            for c in self.a["cells"]
            if (c["config"], c["phase"], c["rate_per_s"]) == (config, "a", self.rates["ref_safe"])
            and usable(c)
            for s in (c.get("cpu") or {}).get("spinning") or []
        }

    def host(self, s: Statement) -> Cell:
        cells = [c for c in self.a["cells"] if usable(c)]
        hosts = [c["host"] for c in cells if c.get("host") is not None]
        gpus = [h["gpu"] for h in hosts if h.get("gpu") is not None]
        words, values = [], [] if len(hosts) == len(cells) else the(len(hosts)) + the(len(cells))

        def span(found: list[Entry], key: str, unit: str, digits: int) -> tuple[list[Value], list[Value]]:
            known = [f[key] for f in found if f.get(key) is not None]
            if not known:
                return [], []
            scale = 100 if unit == "ratio" else 1
            same = f"{min(known) * scale:.{digits}f}" == f"{max(known) * scale:.{digits}f}"
            # Of a range the last number alone has the unit.
            return [] if same else the(min(known) * scale, "number"), the(max(known), unit)

        asked = (
            (hosts, "steal_share", "ratio", 2), (hosts, "cpu_mhz_p50", "MHz", 0), (hosts, "cpu_work_us_mean", "us", 0),
            (gpus, "sm_mhz_p50", "MHz", 0), (gpus, "temperature_c_max", "degrees", 1), (gpus, "power_w_mean", "W", 1),
        )  # fmt: skip
        for one in asked:
            low, high = span(*one)
            values += low + high
        for reason, n in Counter(r for g in gpus for r in g.get("clock_reasons") or {}).most_common():
            words.append(f"{reason} in")
            values += the(n) + the(len(gpus))
        failed = [g["errors"] for g in gpus if g.get("errors")]
        if failed:
            words.append(f"({failed[0][0]})")
            values += the(len(failed))
        return said(words, values)

    # By cached blocks, and lists of cells.
    def growth(self, s: Statement) -> Cell:
        words, values = [], list(self.confidence)
        for e in sorted(self.a["growth"], key=lambda e: (self.configs.index(e["config"]) if e["config"] in self.configs else 99)):  # fmt: skip
            total = next((x for x in e["slopes"] if x["quantity"] == "connector_total_us"), {})
            slope, label = total.get("per_1000_cached_blocks") or {}, self.name(e["config"], 60)
            if e["config"] == "plain":
                continue
            if None in (slope.get("point"), slope.get("low"), slope.get("high")):
                words.append(f"{label}: whether its hooks grow with what is cached is not known")
            elif sign(slope) == 0:
                words += [f"{label}: no growth of its hooks", "per 1,000 blocks is"]
                values += the(max(abs(slope["low"]), abs(slope["high"]), 0.01), "us")
            else:
                words += [
                    f"{label}: its hooks take {'longer' if slope['point'] > 0 else 'less'}",
                    "the more is cached, by",
                    "per 1,000 blocks and step, over",
                ]
                values += estimate(slope, "us") + [
                    v for x in total.get("cached_blocks") or [] for v in the(x)
                ]
        return said(words, values)

    def growth_cells(self, _: Statement) -> Cell:
        return said((), the(sum(len(e["cells"]) for e in self.a["growth"])))

    def shapes(self, _: Statement) -> Cell:
        keys = ("config", "reference", "rate_per_s", "input_tokens", "output_tokens")
        own = [t for t in self.a["taxes"] if t["phase"] in ("b", "b_prime") and t["metric"] in NAMES]
        return said((), the(len({tuple(t[k] for k in keys) for t in own})))

    def cells(self, _: Statement) -> Cell:
        return said((), the(len(self.a["cells"])) + self.confidence)

    def second_launches(self, _: Statement) -> Cell:
        own = [c for c in self.a["cells"] if c["config"] == "plain_again"]
        return said((), the(sum(map(usable, own))) + the(len(own)))
