"""Titles and captions of figures, and here those of taxes (4, 5, 7 and 8): whose numbers each has to hold, how many of how many it counts, and whom it names.

All of it is worked out here from the aggregate; the room ``figures`` is not asked.
"""

import re
from collections.abc import Callable

from claim_cells import Cell, Entry, is_open, is_wide, launch_of, sign
from claim_left_out import PARTS, LeftOut
from claim_lines import both_sides, sizes
from claim_numbers import estimate, the
from claim_phrases import phrases
from claim_told import NAMES, listing, said
from claim_values import PLAINS, Value
from page_statements import Statement

REFERENCES = ("ref_safe", "ref_load")
REST = "what it adds to the no-op connector (settings that it switches among it)"


class Figures(LeftOut):
    """Of one aggregate: what stands above and below each figure."""

    def faults(self, s: Statement) -> list[str] | None:
        """None where nobody has worked out what the statement says."""
        if re.match(r"Figure \d is left out", s.text):
            return list(self.omitted(s).faults(s.text))
        name = s.section.split()[-1]
        if not s.section.startswith("Figures") or not s.section.split()[1:]:
            return super().faults(s)
        title, caption = self.figures()[name[:4]]
        cell = caption(s) if s.is_caption else title(s)
        return list(cell.within(*phrases(s)).faults(s.text))

    def figures(self) -> dict[str, tuple[Callable[[Statement], Cell], Callable[[Statement], Cell]]]:
        return {
            "fig1": (self.levels_title, self.levels_caption), "fig2": (self.levels_title, self.levels_caption),
            "fig3": (self.throughput_title, self.throughput_caption), "fig4": (self.taxes_title, self.taxes_caption),
            "fig5": (self.shapes_title, self.shapes_caption), "fig6": (self.steps_title, self.steps_caption),
            "fig7": (self.parts_title, self.parts_caption), "fig8": (self.stack_title, self.stack_caption),
            "fig9": (self.split_title, self.split_caption),
        }  # fmt: skip

    # Figures 4 and 5: taxes.
    def taxes_title(self, s: Statement) -> Cell:
        drawn = [(r, m) for r in REFERENCES for m in NAMES if self.main(m, r)]
        of_one = [(r, m) for r, m in drawn if any(not c.startswith(PLAINS) for c in self.main(m, r))]
        reference, metric = (of_one or drawn)[0]
        without = self.without_number(metric, reference)
        words, values = self.told_apart(self.main(metric, reference), without=without)
        return said([f"{NAMES[metric]} {self.at_rate(reference)}:", *words], values)

    def taxes_caption(self, s: Statement) -> Cell:
        every = {(m, r): self.main(m, r) for m in NAMES for r in REFERENCES}
        known = list(dict.fromkeys(c for found in every.values() for c in found))
        order = self.drawn_of(known)
        taxes = {k: {c: t for c, t in found.items() if c in order} for k, found in every.items()}
        present = [r for r in REFERENCES if any(taxes[m, r] for m in NAMES)]
        if len(present) == 2 and self.rates["ref_safe"] == self.rates["ref_load"]:
            present = ["ref_safe"]
        shown = [t for r in present for m in NAMES for t in taxes[m, r].values()]
        words = [
            "/ percentile of plain - 1",
            *self.not_drawn(known),
            self.launches_behind(shown),
            *self.left_out("a", {c for r in present for m in NAMES for c in taxes[m, r]}, shown),
        ]
        floors = [
            e for e in self.a["repeats"]
            if e["reference"] == "ref_safe" and any(taxes.get((e["metric"], r)) for r in REFERENCES) and None not in (e["noise_floor"]["low"], e["noise_floor"]["high"])
        ]  # fmt: skip
        if floors and "ref_safe" in present:
            words.append(
                "The grey band is the interval of plain's second launches against its first, at ref_safe."
            )
        if len(present) == 2:
            words.append("The gap between the two bars of a connector is a difference of two estimates")
        for r in present:
            late = self.behind([t for m in NAMES for t in taxes[m, r].values()])
            late = late.replace("Plain", "plain", 1)
            words += [f"At {r} {late} did not keep up: those taxes hold queueing."] if late else []
        words += self.carried()
        every = sorted({c for found in taxes.values() for c in found})
        for r in present:
            lacks = {c: " or ".join(n[:4] for m, n in NAMES.items() if c not in taxes[m, r]) for c in every}
            for which in sorted(set(filter(None, lacks.values()))):
                words.append(
                    f"Without a {which} bar at {r}: {', '.join(c for c in every if lacks[c] == which)}."
                )
        told, counts = both_sides([t for found in taxes.values() for t in found.values()])
        return said([*words, *told], [*self.confidence, *counts])

    def grid(self) -> dict[tuple[str, int, int], Entry]:
        """What is drawn of it."""
        every = self.every_grid()
        drawn = self.drawn_of(dict.fromkeys(c for c, *_ in every))
        return {k: tax for k, tax in every.items() if k[0] in drawn}

    def without_a_number_there(self) -> list[Entry]:
        """The main taxes without one at a shape of Phase B."""
        shapes = {(t["input_tokens"], t["output_tokens"]) for t in self.a["taxes"] if t["phase"] == "b"}
        return [
            t for t in self.a["main_taxes"]
            if (t["metric"], t["reference"]) == ("ttft_p90", "ref_safe") and not t["available"] and (t["input_tokens"], t["output_tokens"]) in shapes
        ]  # fmt: skip

    def every_grid(self) -> dict[tuple[str, int, int], Entry]:
        """The tax that stands at each shape, or the cell's own; at Phase A's the main one, whatever became of Phase B's cell."""
        keys = ("config", "metric", "rate_per_s", "input_tokens", "output_tokens")
        chosen = {tuple(t[k] for k in keys): t for t in self.a["main_taxes"]}
        measured = [
            t for t in self.a["taxes"]
            if (t["metric"], t["reference"], t["phase"]) == ("ttft_p90", "ref_safe", "b") and t["config"] != "plain"
        ]  # fmt: skip
        found = {}
        for own in measured:
            tax = chosen.get(tuple(own[k] for k in keys), own)
            tax = own if tax["point"] is None and own["point"] is None else tax
            if tax["point"] is not None:
                found[tax["config"], tax["input_tokens"], tax["output_tokens"]] = tax
        places = {tuple(t[k] for k in keys[2:]) for t in measured}
        for tax in self.main("ttft_p90").values():
            if tuple(tax[k] for k in keys[2:]) in places:
                found.setdefault((tax["config"], tax["input_tokens"], tax["output_tokens"]), tax)
        order = {c: k for k, c in enumerate(self.configs)}
        return {k: found[k] for k in sorted(found, key=lambda k: order.get(k[0], 99))}

    def moved(self) -> list[str]:
        """At a shape where not all taxes are of Phase B's launch, whose they are."""
        whose: dict[tuple[int, int], dict[str, list[str]]] = {}
        for (config, *shape), tax in self.grid().items():
            phase = str(tax["phase"])
            of = (
                f"of {launch_of(phase).replace('phase', 'Phase')}"
                if phase != "b"
                else "of Phase B's own launch"
            )
            of = of if tax.get("blocks") is None else f"over {tax['blocks']} blocks of launches"
            whose.setdefault((shape[0], shape[1]), {}).setdefault(of, []).append(config)
        words = []
        for (tokens_in, tokens_out), of in whose.items():
            if set(of) != {"of Phase B's own launch"}:
                words.append(f"At {tokens_in} x {tokens_out} tokens, Phase A's shape, the tax is")
                words += [f"{launch} for {listing(configs, 9)}" for launch, configs in of.items()]
        return words

    def shapes_title(self, s: Statement) -> Cell:
        grid = {k: t for k, t in self.grid().items() if not k[0].startswith(PLAINS)}
        if not grid:
            return said(["No connector has a TTFT tax at any shape"], ())
        above, below = ({k: t for k, t in grid.items() if sign(t) == side} for side in (1, -1))
        n, unknown = the(len(grid)), the(sum(map(is_open, grid.values())) or None)
        not_known = ["it is not known"] if unknown else []
        if not above and not below:
            return said(
                ["At no shape is a connector's TTFT tax told apart from zero", *not_known], n + unknown
            )
        if above:
            key = max(above, key=lambda k: above[k]["point"])
            which = "the tax above zero is" if len(above) == 1 else "the largest of these taxes is"
            words = ["above zero in", *(["and below it in"] if below else []), which]
            values = the(len(above)) + n + (the(len(below)) if below else [])
        else:
            key = min(below, key=lambda k: below[k]["point"])
            words = ["below zero in", "and above it in none", "the lowest is"]
            values = the(len(below)) + n
        tax = grid[key]
        values += estimate(tax) + (the(tax["blocks"]) if tax.get("blocks") is not None else [])
        values += the(key[1]) + the(key[2])
        if len({t["rate_per_s"] for t in self.grid().values()}) > 1:
            values += the(tax["rate_per_s"], "rate")
        words += ["where a side did not keep up"] if tax.get("overloaded") else []
        return said([*words, f"{self.name(key[0])} at", *not_known], values + unknown)

    def shapes_caption(self, s: Statement) -> Cell:
        grid = self.grid()
        rates = sorted({t["rate_per_s"] for t in grid.values()})
        words = [
            self.at_rate("ref_safe", ""),
            *self.carried(),
            *self.not_drawn(dict.fromkeys(c for c, *_ in self.every_grid())),
            *self.left_out("b", {c for c, *_ in grid}, [*grid.values(), *self.without_a_number_there()]),
        ]
        values = [v for r in (rates[0], rates[-1]) for v in the(r, "rate")] if len(rates) > 1 else []
        safe = self.rates["ref_safe"]
        if len(rates) == 1 and safe is not None and rates != [safe]:
            words, values = [*words, "and not at"], the(rates[0], "rate")
        elif len(rates) > 1 and safe is not None and rates[-1] > safe:
            words += ["and not at", "in all"]
        several = sorted({k[1:] for k, t in grid.items() if t.get("blocks") is not None})
        if several:
            words.append(f"at {listing([f'{i} x {o} tokens' for i, o in several], 3)} over as many blocks")
        words.append("of one launch each")
        words += ["dotted where an open end leaves it open which"] if any(map(is_open, grid.values())) else []
        told, counts = both_sides(list(grid.values()))
        words += told
        values += [*self.confidence, *counts]
        words += self.moved()
        if queued := sum(bool(t.get("overloaded")) for t in grid.values()):
            values += the(queued) + the(len(grid))
            words += [
                "In",
                "of the",
                "cells drawn plain or the connector did not keep up: those taxes hold queueing.",
            ]
        configs = [*(c for c in self.configs if any(k[0] == c for k in grid))]
        configs += [c for c in dict.fromkeys(k[0] for k in grid) if c not in configs]
        inputs, outputs = (sorted({k[n] for k in grid}) for n in (1, 2))
        missing = [f"{c} {i}x{o}" for c in configs for i in inputs for o in outputs if (c, i, o) not in grid]
        words += [f"Not available: {listing(missing, 3)}."] if missing else []
        return said(words, values)

    # Figures 7 and 8: what a tax is made of, and whether taxes add up.
    def parts_title(self, s: Statement) -> Cell:
        stacks = {m: {c: e["total"] for c, e in own.items()} for m, own in self.stacks().items()}
        metric = next((m for m, own in stacks.items() if any(sign(v) > 0 for v in own.values())), None)
        if metric is None:
            return self.nothing_to_split(stacks)
        totals, without = stacks[metric], self.no_total(metric)
        above, below = ([c for c in totals if sign(totals[c]) == side] for side in (1, -1))
        largest = max(above, key=lambda c: totals[c]["point"])
        parts, why = self.parts(self.stacks()[metric][largest])
        words, values = [], estimate(totals[largest])
        clear = sorted((p for p in parts if sign(parts[p]) > 0), key=lambda p: -parts[p]["point"])
        clear += sorted((p for p in parts if sign(parts[p]) < 0), key=lambda p: parts[p]["point"])
        called = {p: REST if p == "implementation" and "flags" not in parts else PARTS[p] for p in parts}
        for p in clear:
            words.append(f"is {called[p]}")
            values += estimate(parts[p])
        nothing = [p for p, v in parts.items() if (v["low"], v["high"]) == (0, 0)]
        rest = [called[p] for p in parts if p not in [*clear, *nothing]] if clear else []
        words += [f"not told apart from zero: {listing(rest)}"] if rest else []
        if clear and not all(0 <= parts[p]["point"] <= totals[largest]["point"] for p in clear):
            # More than all of it is no part of it.
            words += [f"{self.name(largest)} adds", f"to {NAMES[metric]}:"]
        else:
            head = "No part of" if parts and not clear else "Of what" if not parts else "Of"
            words += [f"{head} the", f"that {self.name(largest)} adds to {NAMES[metric]}"]
        if not parts:
            words.append(f"is made cannot be told: {why}")
        elif not clear:
            unknown = [called[p] for p in parts if is_open(parts[p])]
            words += [
                "is told apart from zero",
                *([f"of {listing(unknown)} it is not known"] if unknown else []),
            ]
        n = len(totals) + len(without)
        if n > 1:
            unknown = sorted((c for c in totals if is_open(totals[c])), key=lambda c: -totals[c]["point"])
            unknown = [self.name(c) for c in unknown]
            words += [
                "a tax is found for",
                f"connectors{self.beside()}",
                *(["and a gain for"] if below else []),
            ]
            words += [f"not known for {listing(unknown)}"] if unknown else []
            wide = [self.name(c) for c in totals if is_wide(totals[c])]
            words += [f"not resolved here for {listing(wide)}"] if wide else []
            words += [f"no number for {listing([self.name(c) for c in without])}"] if without else []
            values += the(len(above)) + the(n) + (the(len(below)) + the(n) if below else [])
        return said(words, values)

    def beside(self) -> str:
        """The no-op connector, where there is one, is not counted among connectors that have parts."""
        return " beside the no-op one" if "noop_connector" in self.configs else ""

    def no_total(self, metric: str) -> list[str]:
        """Those without a tax to split; the no-op connector's own is a part."""
        return [c for c in self.without_number(metric) if c != "noop_connector"]

    def nothing_to_split(self, stacks: dict[str, dict[str, Entry]]) -> Cell:
        every = [v for own in stacks.values() for v in own.values()]
        whether, values = "Whether there is a tax to split is", list[Value]()
        words = ["No tax to split is found."]
        if any(map(is_open, every)):
            words = [f"{whether} not known."]
        elif any(map(is_wide, every)):
            words = [f"{whether} not resolved here."]
        for metric, own in stacks.items():
            told, numbers = self.told_apart(
                own, anyone=True, without=self.no_total(metric), beside=self.beside()
            )
            words += [f"{NAMES[metric]}:", *told]
            values += numbers
        return said(words, values)

    def parts_caption(self, s: Statement) -> Cell:
        stacks = self.stacks()
        main = [t for m, own in stacks.items() for c, t in self.main(m).items() if c in own]
        drawn = [t for m in stacks for c, t in self.main(m).items() if c in self.drawn(m)]
        split = {(m, c): self.parts(e) for m, own in stacks.items() for c, e in own.items()}
        whole = sorted({c for (_, c), (p, _) in split.items() if "flags" in p and p["flags"]["point"] == 0})
        two = {
            c if all(c in own for own in stacks.values()) else f"{c} ({NAMES[m]})": why
            for (m, c), (p, why) in split.items()
            if p and "flags" not in p
        }
        torn = {c: why for (_, c), (p, why) in split.items() if not p}
        words = [
            f"At {self.at_rate('ref_safe', '')}:",
            "framework = tax of the no-op connector less its own;",
            self.launches_behind(drawn),
            *self.held_queueing(drawn),
            *self.carried(),
            *self.left_out(
                "a",
                {"noop_connector", *(c for own in stacks.values() for c in own)},
                drawn,
                self.rates["ref_safe"],
            ),
        ]
        for head, fewer in (("in fewer", True), ("over other", False)):
            if named := self.unlike(fewer=fewer):
                words.append(f"Known {head} blocks than the whole: {listing(named, 9)}.")
        words += [f"No setting of plain's is switched by {listing(whole, 6)}."] if whole else []
        words += ["framework = the no-op connector's whole tax"] if two else []
        words += [f"in either: {'; '.join(self.reasons_once(two))}."] if two else []
        words += [f"{c} is not split: {why}." for c, why in torn.items()]
        return said(words, [*self.confidence, *sizes([t.get("n") for t in main])])

    @staticmethod
    def reasons_once(two: dict[str, str]) -> list[str]:
        """What is the same of several but for the name of their baseline is said once."""
        said_of: dict[str, list[str]] = {}
        for name, why in two.items():
            said_of.setdefault(
                why.replace(f"plain_matched_{name.split(' (')[0]}", "plain_matched_…"), []
            ).append(name)
        return [
            f"{listing(names)}, each since {why}" if names[1:] else f"{names[0]}, since {two[names[0]]}"
            for why, names in said_of.items()
        ]

    def drawn(self, metric: str) -> set[str]:
        """Whose taxes are behind the bars: those that are split, and those that are parts."""
        found = set(self.stacks()[metric])
        for config, e in self.stacks()[metric].items():
            parts, _ = self.parts(e)
            found |= {"noop_connector"} if "framework" in parts else set()
            found |= {f"plain_matched_{config}"} if "flags" in parts else set()
        return found

    def held_queueing(self, taxes: list[Entry]) -> list[str]:
        behind = self.behind(taxes)
        return [f"{behind} did not keep up: those taxes hold queueing."] if behind else []

    def unlike(self, *, fewer: bool) -> list[str]:
        """Parts that fewer blocks know than the whole, or that more do."""
        named = []
        for metric, own in self.stacks().items():
            for config, e in own.items():
                kinds = {p: part.get("kind") for p, part in self.parts(e)[0].items()}
                others = dict.fromkeys(k for k in kinds.values() if k not in (None, e["kind"]))
                for kind in others:
                    if (int(kind.split()[1]) < int(e["kind"].split()[1])) != fewer:
                        continue
                    parts = ", ".join(p for p, k in kinds.items() if k == kind)
                    named.append(f"{parts} of {NAMES[metric]} of {config} {kind}")
        return named

    def stack(self) -> tuple[str, tuple[str, str], dict[str, Entry]]:
        taxes = self.main("ttft_p90")
        return next(
            (whole, parts, taxes) for whole, parts in self.known_stacks()
            if {whole, *parts} <= taxes.keys() and len({taxes[c].get("blocks") is None for c in (whole, *parts)}) == 1
        )  # fmt: skip

    def stack_title(self, s: Statement) -> Cell:
        whole, parts, taxes = self.stack()
        tax, name = taxes[whole], self.name(whole)
        verdict = next((h for h in self.a["hypotheses"] if (h["id"], h["subject"]) == ("H4", whole)), {})
        added = (verdict.get("numbers") or {}).get("sum_of_parts") or {}
        if added.get("point") is None:
            ends = {k: [taxes[c][k] for c in parts] for k in ("point", "low", "high")}
            added = {k: None if None in v else sum(v) for k, v in ends.items()}
        against = "so additivity cannot be held against 30 % of the stack's tax; its parts are"
        if is_open(tax):
            words = [f"Whether {name} has a tax is not known,", against]
            return said([*words, "as a sum"], estimate(tax) + estimate(added))
        if sign(tax) == 0:
            return said(
                [f"The tax of {name},", f"is not told apart from zero, {against}", "as a sum"],
                estimate(tax) + estimate(added),
            )
        if tax["point"] < 0:
            words = [f"{name} is a gain,", "and additivity is asked of taxes; its parts are", "as a sum"]
            return said(words, estimate(tax) + estimate(added))
        outcome = verdict.get("outcome") or "not judged"
        subject = "taxes" if all(sign(taxes[c]) > 0 and not is_open(taxes[c]) for c in parts) else "parts"
        words = {
            "supported": f"The two {subject} add up:",
            "refuted": f"The two {subject} interfere, together they cost more:"
            if tax["point"] > added["point"]
            else f"The two {subject} share a cost, together they cost less:",
        }
        return said(
            [
                words.get(outcome, f"Whether the two parts add up is {outcome}:"),
                "as a sum,",
                "measured together",
            ],
            estimate(added) + estimate(tax),
        )

    def stack_caption(self, s: Statement) -> Cell:
        whole, parts, taxes = self.stack()
        own = [taxes[c] for c in (*parts, whole)]
        words = [
            self.launches_behind(own),
            f"Tax of TTFT p90 {self.at_rate('ref_safe')};",
            "up to 30 % apart counts as additive",
            *self.held_queueing(own),
            *self.carried(),
        ]
        told, counts = both_sides(own)
        plains = ["plain", *(["plain_again"] if any(t.get("blocks") is not None for t in own) else [])]
        lost = self.left_out(
            "a", taxes=own, at=self.rates["ref_safe"], among=[*plains, *(t["config"] for t in own)]
        )
        return said([*words, *told, *lost], [*self.confidence, *counts])
