"""The first lines of a page: what the device was, the headline, and what qualifies it."""

import re

from claim_cells import Cell, Entry, behind, holds, is_open, is_wide, launch_of, no_number, sign, usable
from claim_numbers import estimate, the
from claim_told import Told, listing, said, short
from claim_values import PLAINS
from page_statements import Statement

STEP = ("base_us", "per_prefill_token_us", "per_decode_seq_us", "per_context_token_us")
HOST = ("before_launch_us", "before_launch_per_seq_us", "after_launch_us")


class Head(Told):
    """Of one aggregate."""

    def gpu(self) -> Entry:
        return self.a["provenance"].get("virtual_gpu") or {}

    def clock(self, _: Statement) -> Cell:
        gpu, step = self.gpu(), self.gpu().get("step") or {}
        known = [the(step.get(k), "us") for k in STEP]
        return said(
            [f"{gpu.get('name')} (profile {gpu.get('profile')}, {gpu.get('sha256')})"],
            [v for k in known for v in k] if all(known) else [],
        )

    def not_shown(self, _: Statement) -> Cell:
        host = self.gpu().get("host") or {}
        known = [host.get(k) or 0.0 for k in HOST]
        return (
            said((), [v for x in known for v in the(x, "us")])
            if any(known)
            else said(("which is set to none",), ())
        )

    def stand_ins(self, _: Statement) -> Cell:
        words = []
        for config in self.configs:
            own = [(c.get("health") or {}).get("stand_ins") or [] for c in self.a["cells"] if c["config"] == config]  # fmt: skip
            if found := dict.fromkeys(" ".join(w.split()) for ws in own for w in ws):
                words.append(f"{self.name(config, 400)} ({'; '.join(found)})")
        return said(words, ())

    def clocks(self, config: str | None = None) -> list[Entry]:
        cells = [c for c in self.a["cells"] if usable(c) and config in (None, c["config"])]
        return [k for c in cells if (k := (c.get("health") or {}).get("device_clock"))]

    def kept_time(self, _: Statement) -> Cell:
        clocks = self.clocks()
        least = min(k["slack_us"]["p10"] for k in clocks)
        late = the(max(k["late_share"] for k in clocks), "ratio")
        told = (
            "or more before the device"
            if least >= 0
            else "the device waited for the host in one step of ten, by"
        )
        return said((told,), the(len(clocks)) + late + the(abs(least), "us"))

    def first_line(self, _: Statement) -> Cell:
        date = f", {self.a['date']}" if self.a.get("date") else ""
        return said([f"campaign {self.a.get('campaign') or 'unnamed'}{date}"], ())

    def source(self, _: Statement) -> Cell:
        """Of a campaign that no GPU and no clock stood behind."""
        provenance = self.a["provenance"]
        if provenance.get("engine_kind") == "emulator" or (provenance.get("versions") or {}).get("emulator"):
            return said(["These are numbers of the embedded engine, a model of a server"], ())
        return said(["CPU host"], the((provenance.get("host") or {}).get("cores")))

    def put_in(self, _: Statement) -> Cell:
        """How many intervals hold the model's tax, each rate once."""
        found = self.a["put_in"]
        told = {
            (e["config"], e["metric"], e["rate_per_s"]): held
            for e in found["taxes"]
            for tax in [self.main(e["metric"], e["reference"]).get(e["config"])]
            if tax is not None and (held := holds(e["tax"], tax)) is not None
        }
        return said(
            (), [*the(found["launches"]), *the(sum(told.values())), *the(len(told)), *self.confidence]
        )

    def flag(self, s: Statement) -> Cell:
        """One of the flags of the reference rates, and what it means."""
        flags = sorted(self.a["reference_rates"].get("flags") or [], key=len, reverse=True)
        named = next((f for f in flags if s.text.startswith(f"Flag {f}")), "no flag of the reference rates")
        return said([f"Flag {named}", *(["Figure 1 shows"] if "Figure " in s.text else [])], ())

    def absent(self, config: str) -> str:
        """``nixl_both was skipped: <reason>``."""
        value = self.a["configs"].get(config)
        if value is None:
            return f"{config} is not part of this campaign"
        status, reason = str(value.get("status") or "missing"), str(value.get("reason") or "")
        words = {"measured": "has no usable number here", "partial": "was measured in part only", "skipped": "was skipped", "failed": "failed"}  # fmt: skip
        reason = reason.removeprefix(f"{status}: ")
        return f"{config} {words.get(status, f'is {status}')}" + (f": {reason}" if reason else "")

    def taxed(self) -> dict[str, Entry]:
        """Connectors with a TTFT tax at ref_safe; plain with a connector's settings is none."""
        return {c: t for c, t in self.main("ttft_p90").items() if not c.startswith(PLAINS)}

    def subject(self) -> str:
        """Mooncake (both); without it the largest of those that count."""
        found = self.taxed()
        if "mooncake_both" in found:
            return "mooncake_both"
        return max(found, key=lambda c: (found[c].get("blocks") is not None, sign(found[c]) > 0, found[c]["point"]))  # fmt: skip

    def headline(self, s: Statement) -> Cell:
        if not self.taxed():
            return said(
                [
                    f"No connector's tax on TTFT p90 could be measured at ref_safe and Phase A's shape ({self.nobody()})"
                ],
                (),
            )
        config = self.subject()
        tax = self.main("ttft_p90")[config]
        number, where, label = estimate(tax), self.at_rate("ref_safe"), self.labels.get(config, config)
        around = self.unmeasured()
        if self.gpu() and self.a["provenance"].get("engine_kind") == "virtual_gpu":
            around.append(f"On a virtual {self.gpu().get('name')}:")
        why = f"{short(str(tax.get('reason')), 400)}."
        around.append(self.kind(tax))
        beside = [*number, *self.confidence]
        if is_open(tax):
            words = [f"{label}: whether it has a tax on TTFT p90 {where} is not known; the estimate is"]
            ends = "no bounds" if tax["low"] is tax["high"] is None else "an open end"
            words.append(f"The interval has {ends} and does not exclude zero: {why}")
            return said([*words, *around], beside)
        if is_wide(tax):
            words = [
                f"{label}: whether it has a tax on TTFT p90 {where} is not resolved here; the estimate is"
            ]
            return said([*words, *around], beside)
        if sign(tax) == 0:
            words = [f"{label}: no tax on TTFT p90 is found {where}; the estimate is"]
            return said([*words, *around], beside)
        if sign(tax) < 0:
            return said([f"With {label} switched on TTFT p90 {where} is lower:", *around], beside)
        point, low, high = (the(tax[k], "ratio") for k in ("point", "low", "high"))
        words = [f"switching on {label} costs{'' if high else ' at least'}", f"more TTFT p90 {where},", *around]  # fmt: skip
        if high:
            return said([*words, "interval"], [*point, *self.confidence, *low, *high])
        words += ["by its", "The estimate is", f"the upper end is open: {why}"]
        return said(words, [*low, *self.confidence, *point])

    @staticmethod
    def kind(tax: Entry) -> str:
        blocks = tax.get("blocks")
        return "of one launch" if blocks is None else f"over {blocks} blocks of launches"

    def why_without(self, config: str) -> str:
        """Why it has no tax of TTFT p90 at ref_safe."""
        keys = {"config": config, "metric": "ttft_p90", "reference": "ref_safe"}
        row = next((t for t in self.a["main_taxes"] if all(t[k] == v for k, v in keys.items())), {})
        return str(row.get("reason") or self.no_number(config))

    def no_number(self, config: str) -> str:
        """Of a configuration without a tax, behind its name."""
        return no_number(self.a["configs"].get(config))

    def by_reason(self, configs: list[str]) -> dict[str, list[str]]:
        """Why -> who; of several it says no longer ``it``."""
        found: dict[str, list[str]] = {}
        for c in configs:
            found.setdefault(short(self.why_without(c), 160), []).append(self.name(c))
        return {
            why if len(own) == 1 else re.sub("^it (was |has )?", "", why): own for why, own in found.items()
        }

    def nobody(self) -> str:
        """Why there is no tax at all: plain's reason, else each connector's."""
        plain = str((self.a["configs"].get("plain") or {}).get("status"))
        if plain not in ("measured", "partial", "None"):
            return short(self.absent("plain"), 400)
        found = self.by_reason(self.without_number("ttft_p90"))
        return (
            "; ".join(
                f"{listing(own)}{', each' if len(own) > 1 else ''}: {why}" for why, own in found.items()
            )
            or "the campaign has no connector"
        )

    def unmeasured(self) -> list[str]:
        """Connectors without a number that were not skipped, each with its reason."""
        wanted = [
            c for c in self.without_number("ttft_p90") if self.a["configs"][c].get("status") != "skipped"
        ]
        return [
            f"{listing(own)} {'has' if len(own) == 1 else 'have'} no number: {why}."
            for why, own in self.by_reason(wanted).items()
        ]

    def details(self, s: Statement) -> Cell | None:
        config = self.subject() if self.taxed() else ""
        tax = self.main("ttft_p90").get(config)
        if tax is None:
            return None
        if " requests with the connector and " in s.text:
            one = next((t for t in self.a["taxes"] if t.get("headline") and all(t[k] == tax[k] for k in ("config", "reference", "metric"))), {})  # fmt: skip
            beside = estimate(one) if tax.get("blocks") is not None else []
            words = ["Phase A's launch alone:"] if beside else []
            if beside:
                beside = [*beside, *(v for k in ("n", "n_plain") for v in the(one.get(k) or 0))]
            words += [
                f"Over {tax['blocks']} blocks of launches it compares"
                if tax.get("blocks") is not None
                else "It compares"
            ]
            counts = [
                v for k in ("n", "n_plain", "input_tokens", "output_tokens") for v in the(tax.get(k) or 0)
            ]
            return said(words, counts + beside)
        if s.text.startswith(("TPOT p90: ", "TTFT p90 at ref_load")):
            keys = ("tpot_p90", "ref_safe") if s.text[1] == "P" else ("ttft_p90", "ref_load")
            other = self.main(*keys).get(config, {})
            where = [] if keys[1] == "ref_safe" else [self.at_rate("ref_load")]
            if where and other.get("blocks") is None and other.get("phase") not in (None, "a"):
                where.append(f"by {launch_of(str(other['phase']))}.")
            counts = [v for k in ("n", "n_plain") for v in the(other.get(k) or 0)]
            return said([*where, self.kind(other)], [*estimate(other), *counts])
        if s.text.startswith("TTFT p90 at ref_safe"):
            chosen = self.taxed()
            words, values = self.told_apart(chosen, without=self.without_number("ttft_p90"))
            return said(
                [
                    f"TTFT p90 {self.at_rate('ref_safe')}:",
                    *words,
                    self.launches_behind(list(chosen.values())),
                ],
                values,
            )
        if s.text.startswith("The cells behind it are flagged"):
            return said([f"flagged {listing(self.flags_behind(tax), 9)};"], ())
        if s.text.startswith(("No connector is found", "No other connector", "Of the connectors that")):
            usual = "mooncake_both"
            why = self.why_without(usual)
            lost = f"{usual} has no number ({short(why, 160)})."
            # Without a reason of its tax's own, what became of it.
            bare = usual not in self.configs or why == self.no_number(usual)
            return said([self.why_this_one(tax), f"{self.absent(usual)}." if bare else lost], ())
        if s.text.startswith("The tax holds "):
            return said([f"The tax holds {tax['holds']}."], ())
        if s.text.startswith("Measured "):
            keys = ("config", "metric", "rate_per_s", "input_tokens", "output_tokens")
            own = (t for t in self.a["taxes"] if t["phase"] == "a" and all(t[k] == tax[k] for k in keys))
            why = str(next(own, {}).get("reason") or "Phase A's has no number")
            return said([f"by {launch_of(str(tax['phase']))}, since {short(why, 400)}."], ())
        return said(["The engine did not keep up"] if tax.get("overloaded") else ["nothing else"], ())

    def why_this_one(self, tax: Entry) -> str:
        """Of the subject where it is not Mooncake; beside taxes over blocks those of one launch do not count, and that is said."""
        over = [t for t in self.taxed().values() if t.get("blocks") is not None]
        beside = " over blocks" if over and len(over) < len(self.taxed()) else ""
        counted = over or list(self.taxed().values())
        alike = sum(sign(t) == sign(tax) for t in counted)
        if sign(tax) > 0 and alike > 1:
            return f"Of the connectors that have a tax{beside} this one has the largest;"
        if sign(tax) > 0:
            return f"No other connector is found to have a tax{beside};"
        why = f", and of the estimates{beside} this is the largest" if len(counted) > 1 else ""
        if sign(tax) < 0:
            why = (
                f", and of the gains{beside} this is the smallest"
                if alike > 1
                else f", and this is the only gain{beside}"
            )
        return f"No connector is found to have a tax{beside}{why};"

    def flags_behind(self, tax: Entry) -> list[str]:
        return sorted({flag for c in behind(self.a, tax) for flag in c.get("flags") or []})
