"""Why a figure is left out, and what Figures 7 and 8 need: worked out from the aggregate."""

from claim_cells import Cell, Entry
from claim_lines import Lines
from claim_told import NAMES, listing, said, short
from claim_values import PLAINS
from page_statements import Statement

STACKS = (
    ("multi_mooncake_lmcache", ("mooncake_both", "lmcache_only")),
    ("multi_noop_example", ("noop_connector", "example_connector")),
)
UNKNOWN = "the engine settings of {} are not known"
PARTS = {
    "flags": "engine settings that it switches",
    "framework": "vLLM's connector framework",
    "implementation": "its own code",
}


class LeftOut(Lines):
    """Of one aggregate."""

    # Why a figure is left out.
    def omitted(self, s: Statement) -> Cell:
        number = int(s.text.split()[1])
        why = {
            1: self.no_levels, 2: self.no_levels, 3: self.no_levels, 4: self.no_taxes, 5: self.no_taxes, 6: self.no_steps, 7: self.no_parts,
            8: self.no_stack, 9: self.no_steps,
        }[number]  # fmt: skip
        return said([f"Figure {number} is left out: {short(why(number), 400)}."], ())

    @staticmethod
    def no_levels(number: int) -> str:
        what = {1: "a TTFT p90", 2: "a TPOT p90", 3: "an effective throughput"}[number]
        return f"no valid cell of phase A has {what}"

    @staticmethod
    def no_taxes(number: int) -> str:
        if number == 4:
            return "no tax of TTFT or TPOT p90 is available at either reference rate and Phase A's shape"
        return "no tax of TTFT p90 at ref_safe stands at any of phase B's shapes"

    def no_steps(self, number: int) -> str:
        if not self.a["step_timing_available"]:
            return (
                f"step times were not recorded: {self.a['step_timing_reason'] or 'no cell has step records'}"
            )
        if number == 6:
            return f"no valid cell of phase A at {self.at_rate('ref_safe', '')} has step records"
        at, where = self.rates["ref_safe"], f"in phase A at {self.at_rate('ref_safe', '')}"
        with_steps = {
            c for c in self.configs for cell in self.sound(c)
            if cell["rate_per_s"] == at and (((cell.get("step") or {}).get("by_kind") or {}).get("decode_only") or {}).get("n")
        }  # fmt: skip
        if "plain" not in with_steps:
            return f"{self.no_plain_steps(where)}, so nobody's decoding steps can be set beside plain's"
        if not any(not c.startswith(PLAINS) for c in with_steps):
            return f"no connector has decoding steps {where} to set beside plain's"
        return f"plain or each connector has too few decoding steps {where} for an interval"

    def no_plain_steps(self, where: str) -> str:
        if (self.a["configs"].get("plain") or {}).get("status") not in ("measured", "partial"):
            return self.absent("plain")
        there = any(c["rate_per_s"] == self.rates["ref_safe"] for c in self.sound("plain"))
        return f"plain has no {'decoding steps' if there else 'usable cell'} {where}"

    def of_one_kind(self, why: str, several: list[str]) -> str:
        """Of taxes that are not combined with one and the same: once for all of them."""
        noop, comma, rest = why.partition(", ")
        kind = rest.partition("'s ")[2]
        if not comma or not kind.endswith(": the two are not combined"):
            return why
        alike = [w.removeprefix(f"{noop}, ").removesuffix(f"'s {kind}") for w in several if w.startswith(f"{noop}, ") and w.endswith(f"'s {kind}")]  # fmt: skip
        whose = "those" if len(alike) > 1 else "that"
        kind = kind.removesuffix(": the two are not combined")
        return f"{noop} and {whose} of {listing(sorted(alike))} {kind}: they are not combined"

    def no_parts(self, _: int) -> str:
        if (self.a["configs"].get("noop_connector") or {}).get("status") not in ("measured", "partial"):
            return f"there is no tax of the framework alone: {self.absent('noop_connector')}"
        reasons = {self.parts(e)[1] for own in self.stacks().values() for e in own.values()} - {""}
        if reasons:
            several = list(dict.fromkeys(why for reason in sorted(reasons) for why in reason.split("; ")))
            if silent := sorted(c for c in self.configs if UNKNOWN.format(c) in several):
                several = [why for why in several if why not in map(UNKNOWN.format, silent)]
                several.insert(0, UNKNOWN.format(listing(silent)))
            several = list(dict.fromkeys(self.of_one_kind(why, several) for why in several))
            return f"no tax can be split: {'; '.join(several)}"
        if not any("noop_connector" in self.main(m) for m in NAMES):
            return f"there is no tax of the framework alone: noop_connector: {self.why_without('noop_connector')}"
        lost: dict[str, dict[str, None]] = {}
        for e in self.a["decomposition"]:
            if reason := str(e["total"].get("reason") or ""):
                lost.setdefault(reason, {})[e["config"]] = None
        told = [f"{listing([*own])}{', each' if len(own) > 1 else ''}: {r}" for r, own in lost.items()]
        why = f": {'; '.join(told)}" if told else ""
        return f"the tax of no connector beside the no-op one is known at ref_safe{why}"

    def no_stack(self, _: int) -> str:
        """Of the stack that the campaign asked for, else of the first."""
        asked = [(w, p) for w, p in self.known_stacks() if w in self.configs]
        of_h4 = [h for h in self.a["hypotheses"] if h["id"] == "H4" and h["subject"] in self.configs]
        if not asked and of_h4:
            return f"of the stack in this campaign, {of_h4[0]['subject']}, H4 says: {of_h4[0]['sentence']}"
        whole, parts = (asked or list(STACKS))[0]
        taxes, lacking = self.main("ttft_p90"), self.without_number("ttft_p90")
        missing = []
        for config in (c for c in (*parts, whole) if c not in taxes):
            why = self.why_without(config) if config in lacking else self.no_number(config)
            missing.append(self.absent(config) if why == self.no_number(config) else f"{config}: {why}")
        if missing:
            return f"the check needs both parts and the stacked configuration: {'; '.join(missing)}"
        alone = listing([c for c in (*parts, whole) if taxes[c].get("blocks") is None])
        return f"taxes of one launch ({alone}) and over blocks of launches are not added up or compared"

    def known_stacks(self) -> list[tuple[str, tuple[str, str]]]:
        """Those of the published experiment, then those of which H4 has both parts."""
        of_h4 = {
            h["subject"]: tuple(parts)
            for h in self.a["hypotheses"]
            if h["id"] == "H4" and len(parts := h["numbers"].get("parts") or {}) == 2
        }
        return [*STACKS, *((w, p) for w, p in of_h4.items() if w not in dict(STACKS))]  # type: ignore[list-item]

    def stacks(self) -> dict[str, dict[str, Entry]]:
        """Latency -> configuration -> its entry, of those with a tax."""
        order = {c: k for k, c in enumerate(self.configs)}
        found = {
            m: {e["config"]: e for e in sorted(self.a["decomposition"], key=lambda e: order.get(e["config"], 99))
                if e["metric"] == m and e["total"]["point"] is not None}
            for m in NAMES
        }  # fmt: skip
        return {m: own for m, own in found.items() if own}

    @staticmethod
    def parts(e: Entry) -> tuple[dict[str, Entry], str]:
        """Those told apart from each other, and why there are not three."""
        wanted = [p for p in PARTS if e.get("parts") != 2 or p != "flags"]
        own = {p: e[p] for p in wanted if e[p]["point"] is not None}
        whole = len(own) == len(wanted)
        why = [str(e[p].get("reason") or "") for p in PARTS if p not in own]
        told = why[:1] if whole else [why[0], why[-1]]
        return (own if whole else {}), "; ".join(dict.fromkeys(filter(None, told)))
