"""Titles and captions of figures, and here those of taxes (4 and 5): whose numbers each has to hold, how many of how many it counts, and whom it names.

All of it is worked out here from the aggregate; the room ``figures`` is not asked.
"""

import re
from collections.abc import Callable

from claim_cells import Cell, Entry, is_open, launch_of, sign
from claim_lines import both_sides
from claim_made_of import MadeOf
from claim_numbers import estimate, the
from claim_phrases import phrases
from claim_told import NAMES, listing, said
from claim_values import PLAINS
from page_statements import Statement

REFERENCES = ("ref_safe", "ref_load")


class Figures(MadeOf):
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
            words.append("The line between the two bars of a connector is the gap, what load adds")
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
