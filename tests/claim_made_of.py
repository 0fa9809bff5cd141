"""Titles and captions of the figures of what a tax is made of (7) and of whether taxes add up (8).

All of it is worked out here from the aggregate; the room ``figures`` is not asked.
"""

from claim_cells import Cell, Entry, is_open, is_wide, sign
from claim_left_out import PARTS, LeftOut
from claim_lines import both_sides, sizes
from claim_numbers import estimate, the
from claim_told import NAMES, listing, said
from claim_values import Value
from page_statements import Statement

REST = "what it adds to the no-op connector (settings that it switches among it)"


class MadeOf(LeftOut):
    """Of one aggregate."""

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
