"""Titles and captions of the figures of levels and steps (1 to 3, 6 and 9): whose numbers, how many of how many, and who.

All of it is worked out here from the aggregate; the room ``figures`` is not asked.
"""

import re
from collections.abc import Collection, Mapping, Sequence

from claim_cells import Cell, Entry, has_gap, of_shape, sign, usable
from claim_numbers import estimate, the
from claim_sentences import Sentences
from claim_told import listing, said, short
from claim_values import PLAINS, Value
from page_statements import Statement

from connector_tax.read.figures.words import RANDOM_WORDS


def sizes(counts: Sequence[float | None]) -> list[Value]:
    """``n = 200 to 1,920``; one number where all are alike."""
    known = [int(n) for n in counts if n]
    return [] if not known else the(min(known)) + (the(max(known)) if min(known) < max(known) else [])


def both_sides(taxes: Sequence[Entry]) -> tuple[list[str], list[Value]]:
    """Requests with the connector and without: one range where both have the same."""
    own, plain = (sizes([t.get(k) for t in taxes]) for k in ("n", "n_plain"))
    if [v.number for v in own] == [v.number for v in plain] or not own or not plain:
        return [], own or plain
    return ["with the connector and", "without per"], [*own, *plain]


class Lines(Sentences):
    """Of one aggregate."""

    # What several figures say.
    def left_out(
        self,
        phase: str,
        drawn: Collection[str] | None = None,
        taxes: Sequence[Entry] = (),
        at: float | None = None,
        among: Collection[str] | None = None,
    ) -> list[str]:
        """
        Args:
            at: the rate of a figure that is of one alone.
            among: of whom it is, where not of all.
        """
        over = [of_shape(t) for t in taxes if t.get("blocks") is not None]
        drawn_from = [(t.get("phase"), of_shape(t)) for t in taxes]
        absent = [f"{c} ({v.get('status') or 'missing'})" for c in self.configs if (among is None or c in among) and (v := self.a["configs"][c]).get("status") not in ("measured", "partial")]  # fmt: skip
        lost = [
            f"{c['config']} {'' if c['phase'] == phase else c['phase'] + '/'}{c['cell_id']} ({'; '.join(map(str, c.get('reasons') or [])) or 'files missing or unreadable'})"
            for c in self.a["cells"]
            if (
                c["phase"] == phase
                or (c["phase"], of_shape(c)) in drawn_from
                or (of_shape(c) in over and re.fullmatch(r"a|b|r\d+", c["phase"]))
            )
            and not usable(c)
            and not str(c["cell_id"]).endswith("_unrecorded")
            and at in (None, c["rate_per_s"])
            and (among is None or c["config"] in among)
        ]
        found = [f"Not in the picture: {listing(absent)}."] if absent else []
        silent = [
            c for c in self.configs
            if drawn is not None and c not in drawn and not c.startswith(PLAINS)
            and self.a["configs"][c].get("status") in ("measured", "partial")
        ]  # fmt: skip
        if silent:
            found.append(f"Without a number here: {listing(silent)}.")
        return [*found, f"Excluded cells: {listing(lost, 3)}." if lost else "Excluded cells: none."]

    def carried(self) -> list[str]:
        """Flags of the reference rates."""
        flags = self.a["reference_rates"].get("flags") or []
        return [f"Reference rates carry: {', '.join(flags)}."] if flags else []

    def behind(self, taxes: Sequence[Entry]) -> str:
        """``Plain and nixl_both``: which sides of these taxes did not keep up."""
        sides = [
            ("plain" if side == "plain" else t["config"]) for t in taxes for side in t.get("overloaded") or []
        ]
        return listing(["Plain" if c == "plain" else c for c in self.configs if c in sides])

    def sound(self, config: str) -> list[Entry]:
        """Usable cells of Phase A in the order of their rates."""
        own = [c for c in self.a["cells"] if (c["config"], c["phase"]) == (config, "a") and usable(c)]
        return sorted((c for c in own if (c["rate_per_s"] or 0) > 0), key=lambda c: c["rate_per_s"])

    def knee(self, config: str) -> float | None:
        found: float | None = (self.a["saturation"].get(config) or {}).get("saturation_rate_per_s")
        return found

    # Figures 1 to 3: levels against the rate.
    def lines(self, s: Statement) -> dict[str, list[tuple[Entry, Entry]]]:
        quantity = "ttft_ms" if "fig1" in s.section else "tpot_ms"
        found = {
            c: [
                (cell, p)
                for cell in self.sound(c)
                if ((p := (cell.get(quantity) or {}).get("p90") or {}).get("point") or 0) > 0
            ]
            for c in self.configs
        }
        return {c: points for c, points in found.items() if points}

    def levels_title(self, s: Statement) -> Cell:
        lines, at = self.lines(s), self.rates["ref_safe"]
        values = {c: p for c, points in lines.items() for cell, p in points if cell["rate_per_s"] == at}
        name = "TTFT p90" if "fig1" in s.section else "TPOT p90"
        if at is None or "plain" not in values:
            skipping = self.no_tax_of(s)
            lines = {c: points for c, points in lines.items() if c not in skipping} or lines
            every = sorted((p for points in lines.values() for _, p in points), key=lambda p: p["point"])
            known = sorted({cell["rate_per_s"] for points in lines.values() for cell, _ in points})
            silent = sorted(
                {c["rate_per_s"] for config in self.configs for c in self.sound(config)} - {*known}
            )
            words = [f"{name} ranges from", f"at {listing([f'{r:g}' for r in known])} req/s"]
            words += (
                [f"at {listing([f'{r:g}' for r in silent])} req/s no configuration has one"] if silent else []
            )
            return said(words, [v for p in (every[0], every[-1]) for v in estimate(p, "ms")])
        head = the(at, "rate") + estimate(values["plain"], "ms")
        skipping = self.no_tax_of(s)
        others = [c for c in values if not c.startswith(PLAINS) and c not in skipping]
        others = sorted(others, key=lambda c: values[c]["point"])
        if not others:
            return said([f"{name} is"], head)
        ends = [others[0], others[-1]] if len(others) > 1 else others
        values_of = [v for c in ends for v in estimate(values[c], "ms")]
        words = [f"({self.name(ends[0])}) to", f"({self.name(ends[1])})"] if len(ends) > 1 else [f"({self.name(ends[0])})"]  # fmt: skip
        words += ["with one of", "from"] if len(others) > 1 else ["with one"]
        counted = the(len(others)) if len(others) > 1 else []
        return said([f"{name} is", *words, "one launch each"], head + counted + values_of)

    def no_tax_of(self, s: Statement) -> dict[str, str]:
        """Configurations of which this latency is no tax, and why."""
        found = {
            c: why
            for c, v in self.a["configs"].items()
            if "fig1" in s.section and (why := v.get("ttft_is_no_tax"))
        }
        return found | {
            o["config"]: "its answers differ from plain's"
            for o in self.a["outputs"]
            if o["verdict"] == "differs"
        }

    def levels_caption(self, s: Statement) -> Cell:
        lines = self.lines(s)
        lost = [
            f"{c} at {cell['rate_per_s']:g} req/s"
            for c in self.configs
            for cell in self.sound(c)
            if cell["rate_per_s"] not in [p["rate_per_s"] for p, _ in lines.get(c, [])]
        ]
        knees = [
            f"{c} at {k:g} req/s{', as far as measured' if has_gap(self.a, c, k) else ''}"
            for c in self.configs
            if (k := self.knee(c)) is not None
        ]
        shape = next((c for c in self.a["cells"] if c["phase"] == "a"), {})
        words = [
            f"Saturation begins for {'; '.join(knees)}."
            if knees
            else "No configuration saturates at a measured rate.",
            *self.left_out("a"),
        ]
        if lost:
            words.append(f"say anything of it: {'; '.join(lost)}.")
        if shape:
            words.append(f"{shape['input_tokens']} prompt and {shape['output_tokens']} output tokens")
        counts = [cell.get("n_window") for points in lines.values() for cell, _ in points]
        name = "TTFT" if "fig1" in s.section else "TPOT"
        words += [
            f"not count {c}: its {name} is no tax, {short(w, 400)}."
            for c, w in self.no_tax_of(s).items()
            if c in lines
        ]
        words += [*self.uncounted(lines), *self.carried()]
        return said([*words, "of one launch each"], [*self.confidence, *sizes(counts)])

    def achieved(self) -> dict[str, list[tuple[Entry, Entry]]]:
        found: dict[str, list[tuple[Entry, Entry]]] = {}
        for c in self.configs:
            for cell in self.sound(c):
                value = cell.get("effective_throughput_per_s")
                told = value if isinstance(value, Mapping) else {"point": value, "low": None, "high": None}
                if (told["point"] or 0) > 0:
                    found.setdefault(c, []).append((cell, told))
        return found

    def throughput_title(self, s: Statement) -> Cell:
        lines = self.achieved()
        knees = {c: k for c in lines if (k := self.knee(c)) is not None}
        tops = {c: max(cell["rate_per_s"] for cell, _ in points) for c, points in lines.items()}
        if not knees:
            less = [f"{self.name(c)} to {t:g} req/s" for c, t in tops.items() if t < max(tops.values())]
            words = [
                "Every configuration that was measured keeps up",
                *([f"as far as measured: {listing(less)}"] if less else []),
            ]
            return said(words, the(max(tops.values()), "rate"))
        if "plain" not in lines:
            ends = sorted({min(knees.values()), max(knees.values())})
            return said(["Saturation begins"], [v for e in ends for v in the(e, "rate")])
        limit, connectors = knees.get("plain"), [c for c in self.configs if not c.startswith(PLAINS)]
        head = the(limit if limit is not None else tops["plain"], "rate")
        words = ["Plain saturates at" if limit is not None else "Plain stays unsaturated up to"]
        rates = {c: {cell["rate_per_s"] for cell, _ in points} for c, points in lines.items()}
        every = set().union(*rates.values())
        if any(r < (tops["plain"] if limit is None else limit) for r in every - rates["plain"]):
            words.append("as far as measured")
        if not connectors:
            return said(words, head)
        if limit == min(every):
            # Saturated there as well, or never measured: it may be so below.
            alike = [c for c in connectors if not rates.get(c) or (c in knees and knees[c] <= limit)]
            verb = "saturates" if len(alike) == 1 else "saturate"
            words.append("the lowest rate that was measured")
            if not alike:
                words.append("and no connector saturates earlier")
            elif len(alike) == len(connectors):
                words.append("so whether a connector saturates earlier is not known")
            else:
                words.append(f"whether {listing([self.name(c) for c in alike])} {verb} earlier is not known")
                words.append("and no other connector does")
            return said(words, head)
        below = {r for r in every if (r <= tops["plain"] if limit is None else r < limit)}
        earlier = [c for c in connectors if c in knees and (limit is None or knees[c] < limit)]
        unknown = [c for c in connectors if c not in earlier and below - rates.get(c, set())]
        when, values = "earlier" if limit is not None else "within the measured rates", list(head)
        if earlier:
            lowest = min(knees[c] for c in earlier)
            first = listing([self.name(c) for c in earlier if knees[c] == lowest])
            words += [
                f"connectors {'saturates' if len(earlier) == 1 else 'saturate'} {when}",
                f"{first} first at",
            ]
            lower = {r for r in every if r < lowest}
            if any(lower - rates[c] for c in earlier if knees[c] == lowest):
                words.append("as far as measured")
            values += the(len(earlier)) + the(len(connectors)) + the(lowest, "rate")
        elif not unknown:
            words.append(f"and no connector saturates {when}")
        elif len(unknown) < len(connectors):
            words.append("and no other connector does")
        if unknown:
            whom = (
                "a connector" if len(unknown) == len(connectors) else listing([self.name(c) for c in unknown])
            )
            one = whom == "a connector" or len(unknown) == 1
            words.append(f"whether {whom} {'saturates' if one else 'saturate'} {when} is not known")
        return said(words, values)

    def throughput_caption(self, s: Statement) -> Cell:
        lines = self.achieved()
        points = [p for own in lines.values() for p in own]
        bare = all(v["low"] is None and v["high"] is None for _, v in points)
        knees = any(self.knee(c) is not None for c in lines)
        words = [
            "Rings mark the lowest rate" if knees else "No saturation criterion fired",
            *([RANDOM_WORDS] if self.a["provenance"].get("arrival") in ("poisson", "gamma") else []),
            *self.uncounted(lines),
            *self.left_out("a"),
        ]
        return said(
            words, [*([] if bare else self.confidence), *sizes([c.get("n_window") for c, _ in points])]
        )

    # Figures 6 and 9: steps.
    def steps(self) -> dict[str, Entry]:
        at = self.rates["ref_safe"]
        return {
            c: cell["step"]
            for c in self.configs
            for cell in self.sound(c)
            if cell["rate_per_s"] == at and (cell.get("step") or {}).get("available")
            and len(((cell["step"].get("cdf") or {}).get("step_duration_us")) or []) >= 2
        }  # fmt: skip

    def others(self, found: Collection[str]) -> list[str]:
        """Connectors of the campaign that are not among these."""
        return [c for c in self.configs if c not in found and not c.startswith(PLAINS)]

    def medians(self) -> dict[str, Entry]:
        found = {c: (step.get("step_duration_us") or {}).get("p50") or {} for c, step in self.steps().items()}
        return {c: m for c, m in found.items() if m.get("point") is not None}

    def steps_title(self, s: Statement) -> Cell:
        medians, at = self.medians(), the(self.rates["ref_safe"], "rate")
        if "plain" not in medians:
            return said(["Distribution of step durations at"], at)
        found = {
            t["config"]: t
            for t in self.step_taxes() if t["config"] in medians and not t["config"].startswith(PLAINS)
        }  # fmt: skip
        words, values = (
            self.told_apart(found, "us", "a longer one", "a shorter one", without=self.others(found))
            if found
            else ([], [])
        )
        return said(
            ["The median step of plain takes", *words], estimate(medians["plain"], "us") + at + values
        )

    def step_taxes(self) -> list[Entry]:
        keys = ("step_p50_us", "ref_safe", "a")
        return [
            t
            for t in self.a["taxes"]
            if (t["metric"], t["reference"], t["phase"]) == keys and t["point"] is not None
        ]

    def steps_caption(self, s: Statement) -> Cell:
        steps = self.steps()
        counts = [step.get("n_steps") for step in steps.values()]
        whole = {c: m for c, m in self.medians().items() if None not in (m["low"], m["high"])}
        values = sizes(counts)
        untaxed = [
            t for t in self.a["taxes"]
            if (t["metric"], t["reference"], t["phase"]) == ("step_p50_us", "ref_safe", "a") and t["point"] is None
            and t["config"] in steps and not t["config"].startswith(PLAINS)
        ]  # fmt: skip
        words = [
            self.at_rate("ref_safe", ""),
            "one launch each",
            *(
                f"{t['config']} has no number in the title: {t['reason']}."
                for t in untaxed
                if "plain" in self.medians()
            ),
            *self.uncounted(steps),
            *self.left_out("a", at=self.rates["ref_safe"]),
        ]
        without = [c for c in self.configs if self.a["configs"][c].get("status") in ("measured", "partial") and c not in steps]  # fmt: skip
        there = {
            c: any(cell["rate_per_s"] == self.rates["ref_safe"] for cell in self.sound(c)) for c in without
        }
        for words_of, wanted in (("No step records", True), ("No usable cell of phase A", False)):
            own = [c for c in without if there[c] is wanted]
            words += [f"{words_of} at this rate: {', '.join(own)}."] if own else []
        if behind := self.behind(self.step_taxes()):
            words.append(
                f"{behind} did not keep up at this rate, which moves the median step to another mixture of steps."
            )
        words += self.carried()
        if whole:
            words += ["Whiskers at 0.5: median with", "of one launch, in µs:", *whole]
            values += [*self.confidence, *(v for m in whole.values() for v in estimate(m, "of us"))]
        return said(words, values)

    def splits(self) -> dict[str, Entry]:
        """What is drawn of them."""
        every = self.every_split()
        return {c: every[c] for c in self.drawn_of(every)}

    def every_split(self) -> dict[str, Entry]:
        order = {c: k for k, c in enumerate(self.configs)}
        parts = {"scheduler_hooks", "worker_hooks", "schedule", "update", "round_trip"}
        return {
            e["config"]: e
            for e in sorted(self.a["attribution"], key=lambda e: order.get(e["config"], 99))
            if e["difference_us"]["point"] is not None
            and {p["part"] for p in e["parts"] if p["point"] is not None} == parts
        }

    def split_title(self, s: Statement) -> Cell:
        splits = {c: e["difference_us"] for c, e in self.splits().items()}
        order = {c: k for k, c in enumerate(self.configs)}
        splits = {c: splits[c] for c in sorted(splits, key=lambda c: order.get(c, 99))}
        found = {c: v for c, v in splits.items() if not c.startswith(PLAINS)}
        signs = {sign(v) for v in found.values()}
        shorter = "a shorter decoding step" if -1 in signs and 1 not in signs else "a shorter one"
        words, values = self.told_apart(
            splits, "us", "a longer decoding step", shorter, without=self.others(found)
        )
        if signs & {-1, 1} or not found:
            words[0] = words[0][:1].upper() + words[0][1:]
        else:
            words.insert(0, "The decoding step at ref_safe:")
        longest = max((c for c in found if sign(found[c]) > 0), key=lambda c: found[c]["point"], default=None)
        share = (self.splits()[longest].get("in_hooks_share") or {}) if longest else {}
        if longest and sign(share):
            words += self.in_hooks(share, f"what {self.name(longest)} adds", "Hooks")
            values = values + estimate(share)
        return said(words, values)

    def split_caption(self, s: Statement) -> Cell:
        counts = [e.get("n_steps") for e in self.splits().values()]
        words = [self.at_rate("ref_safe"), "without the slowest 0.1 %", "about 0.4 µs of the recorder"]
        words += self.carried()
        if behind := self.behind([t for t in self.step_taxes() if t["config"] in self.splits()]):
            words.append(f"{behind} did not keep up at this rate, so more requests share a step.")
        return said(
            [
                *words,
                "of one launch",
                *self.not_drawn(self.every_split()),
                *self.left_out("a", self.splits(), at=self.rates["ref_safe"]),
            ],
            sizes(counts) + self.confidence,
        )
