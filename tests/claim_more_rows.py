"""Rows of the other tables of a page, and which table is read how; see ``claim_rows``."""

import re
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from claim_cells import Cell, Entry, has_gap, holds, phase_word, usable, word
from claim_numbers import estimate, the
from claim_rows import TaxRows
from claim_values import Value
from page_statements import Statement

from connector_tax.read.report.qualifiers import FLAG_MEANINGS

QUANTITIES = {
    "build_connector_meta": "build_meta_us",
    "get_finished": "get_finished_us",
    "start_load_kv": "start_load_kv_us",
    "all hooks together": "connector_total_us",
    "decoding step (control)": "decode_step_us",
    "decoding step less plain's": "decode_step_over_plain_us",
}
BURNT = {
    "hooks_p50_us": "hooks per step (median)",
    "step_p50_us": "median step",
    "tpot_p50_us": "TPOT p50",
    "tpot_p90_us": "TPOT p90",
    "ttft_p90_us": "TTFT p90",
}
DECIDED = ("supported", "refuted", "undetermined")
SIGNS = {"reported": "✓", "met": "✓", "not met": "✗"}


class Rows(TaxRows):
    """Of one aggregate: what each row of its page says."""

    def faults(self, statement: Statement) -> list[str] | None:
        """None where the table is not known; else those of the entry that the row comes closest to."""
        table = next((t for pattern, t in self.tables() if re.search(pattern, statement.section)), None)
        if table is None:
            return None
        readings = [
            [f for cell, text in zip(wanted, statement.cells, strict=True) for f in cell.faults(text)]
            for wanted in table(statement)
            if len(wanted) == len(statement.cells)
        ]
        return [*min(readings, key=len, default=["nothing of this name was measured"]), *self.tips(statement)]

    def tips(self, s: Statement) -> Iterator[str]:
        """What is shown where a mouse rests on a latency: why there is none."""
        latencies = [
            (q, p) for q, ps in (("ttft_ms", ("p50", "p90", "p99")), ("tpot_ms", ("p50", "p90"))) for p in ps
        ]
        cells = self.own(self.a["cells"], s.cells[0]) if s.section.startswith("Cells") else []
        for k, tip in enumerate(s.tips):
            q, p = latencies[k - 6] if 0 <= k - 6 < len(latencies) else ("", "")
            told = {str(((c.get(q) or {}).get(p) or {}).get("reason") or "") for c in cells}
            if tip and tip not in told:
                yield f"{tip!r} is shown and not so"

    def tables(self) -> tuple[tuple[str, Callable[[Statement], Iterator[list[Cell]]]], ...]:
        return (
            (r"/ Taxes at every shape", self.shapes),
            (r"^Taxes / At ", self.taxes),
            (r"^Taxes / What was put in", self.burns),
            (r"/ The host over", self.host),
            (r"/ Repeated launches / ", self.repeats),
            (r"/ The same measured", self.twice),
            (r"/ What load adds", self.amplification),
            (r"/ What a tax is made of.*two parts", self.two_parts),
            (r"/ What a tax is made of", self.decomposition),
            (r"/ Engine settings", self.settings),
            (r"/ Where the microseconds", self.attribution),
            (r"/ What recording costs", self.observer),
            (r"/ What each engine process", self.processes),
            (r"/ The virtual GPU", self.device),
            (r"/ Conversations", self.conversations),
            (r"/ By cached blocks.*/ Its", self.growth_cells),
            (r"/ By cached blocks", self.growth_slopes),
            (r"^Verdicts", self.verdicts),
            (r"^Outputs", self.outputs),
            (r"^Success criteria", self.criteria),
            (r"^Configurations", self.configurations),
            (r"^Cells", self.cells),
            (r"^Flags", self.flags),
            (r"^Problems", self.problems),
        )

    def burns(self, s: Statement) -> Iterator[list[Cell]]:
        for e in self.own(self.a["burns"]["rows"], s.cells[0]):
            found, put_in = e["found"], e["put_in_us"]
            kind = str(found.get("kind") or f"not available: {found.get('reason')}")
            nothing = () if put_in is not None else (f"none: {e['reason']}",)
            yield [
                word(s.cells[0]), Cell((), the(e["rate_per_s"], "rate")), word(BURNT[e["metric"]]), Cell(nothing, the(put_in, "us")),
                Cell((kind,), estimate(found, "us")), word({True: "inside", False: "outside the interval", None: ""}[holds(put_in, found)]),
            ]  # fmt: skip

    def verdicts(self, s: Statement) -> Iterator[list[Cell]]:
        for h in self.a["hypotheses"]:
            if h["id"] != s.cells[0]:
                continue
            outcome = str(h["outcome"])
            once = outcome in DECIDED and h.get("kind") != "over blocks"
            p, lost = self._p(h, outcome)
            equal, more, values = h.get("at_equal_host_speed") or {}, [], []
            if equal.get("outcome") and equal.get("sentence"):
                values, note = self._p(equal, str(equal["outcome"]))
                more = ["At equal speed of the host", equal["outcome"], note, "p and Holm's p", equal["sentence"]]  # fmt: skip
            yield [
                word(h["id"]),
                Cell((h["title"], h["subject"])),
                Cell((outcome + (", of one launch" if once else ""), str(h.get("label") or ""))),
                Cell((lost,), p),
                Cell([str(h["sentence"]), *more], values),
            ]

    def _p(self, value: Entry, outcome: str) -> tuple[list[Value], str]:
        own, adjusted = value.get("p_value"), value.get("p_holm")
        if own is None or adjusted is None:
            return [], ""
        lost = outcome in ("supported", "refuted") and adjusted > self.alpha
        return the(own, "p") + the(adjusted, "p"), "not after the correction" if lost else ""

    def outputs(self, s: Statement) -> Iterator[list[Cell]]:
        for o in self.own(self.a["outputs"], s.cells[0]):
            if PHASE_OF.get(s.cells[1]) in (o["phase"], None):
                first = o.get("first_difference") or {}
                where = [k for k in ("prompt", "token") if first.get(k) is not None]
                yield [
                    word(s.cells[0]), word(PHASE.get(o["phase"], "")), Cell((), the(o["n_same"]) + the(o["n_prompts"])),
                    Cell(where, [v for k in where for v in the(first[k])]), word(o["verdict"]),
                ]  # fmt: skip

    def criteria(self, s: Statement) -> Iterator[list[Cell]]:
        for c in self.a["criteria"]:
            if str(c["number"]) == s.cells[0]:
                outcome = str(c["outcome"])
                yield [
                    Cell((), the(c["number"])),
                    word(c["title"]),
                    Cell((f"{SIGNS.get(outcome, '–')} {outcome}",)),
                    word(c["evidence"]),
                ]

    def configurations(self, s: Statement) -> Iterator[list[Cell]]:
        config = s.cells[0].rpartition(" ; ")[2]
        value = self.a["configs"].get(config)
        if value is None:
            return
        status, found = str(value.get("status") or "missing"), self.a["saturation"].get(config) or {}
        own = [c for c in self.a["cells"] if c["config"] == config]
        counts = the(sum(map(usable, own))) + the(len(own)) if own else []
        knee = the(found.get("saturation_rate_per_s"), "rate")
        above = [v for r in found.get("non_monotonic") or [] for v in the(r, "rate")] if knee else []
        asked = config in self.a["saturation"]
        none = "at no measured rate" if asked else "not known: no usable cell of phase A"
        none = none if status in ("measured", "partial") and not knee else ""
        if knee and has_gap(self.a, config, found["saturation_rate_per_s"]):
            none = "as far as measured"
        reason = str(value.get("reason") or "").removeprefix(f"{value.get('status')}: ")
        yield [
            Cell((self.label(config), config)),
            word(status),
            Cell(("usable" if own else "none",), counts),
            Cell(("not at" if above else "", none), knee + above),
            Cell((reason, str(value.get("install") or ""))),
        ]

    def cells(self, s: Statement) -> Iterator[list[Cell]]:
        for c in self.own(self.a["cells"], s.cells[0]):
            phase, rate = str(c["phase"]), c.get("rate_per_s")
            if (PHASE.get(phase, phase.upper()), "closed loop" if phase == "d" else f"{rate:g}") != tuple(s.cells[1:3]):  # fmt: skip
                continue
            bare = ("unrecorded",) if str(c["cell_id"]).endswith("_unrecorded") else ()
            shape = [Cell(bare, the(c.get("input_tokens")) + the(c.get("output_tokens")))]
            if phase in "cd":
                shape = [word(c["cell_id"] if phase == "d" else c["cell_id"].partition("_")[2])]
            verdict = str(c.get("verdict") or "")
            counts = [v for k in ("n_window", "n_ok", "n_dropped", "n_failed") for v in the(c.get(k))]
            latencies = [
                Cell((), estimate((c.get(q) or {}).get(p), "of ms"))
                for q, ps in (("ttft_ms", ("p50", "p90", "p99")), ("tpot_ms", ("p50", "p90")))
                for p in ps
            ]
            fired = [k.replace("_", " ") for k, v in (c.get("saturation_criteria") or {}).items() if v is True]  # fmt: skip
            yield [
                word(s.cells[0]), word(s.cells[1]), Cell((), the(rate)) if phase != "d" else word("closed loop"), *shape,
                word(verdict if usable(c) or verdict != "valid" else "not usable"), Cell((), counts), *latencies,
                Cell((), the(c.get("throughput_ratio"), "number")), self._waiting(c),
                Cell(fired), self._notes(c),
            ]  # fmt: skip

    @staticmethod
    def _waiting(c: Entry) -> Cell:
        return Cell(
            ("of one sample",) if c.get("n_waiting") == 1 else (), the(c.get("waiting_p50"), "number")
        )

    @staticmethod
    def _notes(c: Entry) -> Cell:
        words = [str(x) for k in ("reasons", "flags") for x in c.get(k) or []]
        values: list[Value] = []
        if missed := c.get("n_metrics_missed"):
            words.append("samples of /metrics were missed or could not be read")
            values += the(missed)
        looks = (c.get("stopping") or {}).get("looks") or []
        if looks and "overloaded" not in (c.get("flags") or []):
            widths = looks[-1].get("half_widths") or {}
            words += ["ended at the look of", *(k.replace("_", " ") for k in widths)]
            words += ["unbounded" for v in widths.values() if v is None]
            values += the(looks[-1]["n_planned"]) + [v for w in widths.values() for v in the(w, "ratio")]
        return Cell(words, values)

    def flags(self, s: Statement) -> Iterator[list[Cell]]:
        flag, cells = s.cells[0], self.a["cells"]
        n = sum((c.get("flags") or []).count(flag) for c in cells)
        yield [word(flag), Cell((), the(n) + the(len(cells))), word(FLAG_MEANINGS.get(flag))]

    def problems(self, s: Statement) -> Iterator[list[Cell]]:
        for p in self.a["problems"]:
            yield [word(p.get("where")), word(p.get("what"))]

    # What the engine's processes take, and how well a virtual device kept the time.
    def processes(self, s: Statement) -> Iterator[list[Cell]]:
        label = s.cells[0] or s.above
        for c in self.own(self.a["cells"], label):
            at = self.a["reference_rates"].get("ref_safe_per_s")
            if c["phase"] != "a" or not usable(c) or c["rate_per_s"] != at:
                continue
            cpu, process = c.get("cpu") or {}, s.cells[1]
            elapsed = cpu.get("elapsed_s")
            loaded = {k: v / elapsed for k, v in (cpu.get("loaded_s") or {}).items() if elapsed and v is not None}  # fmt: skip
            tables = (cpu.get("idle_share") or {}, loaded, cpu.get("rss_mib") or {})
            names = {n for t in tables for n in t} | set(cpu.get("loaded_s") or {})
            if process == "all" and len(names) > 1:
                sums = [[v for v in t.values() if v is not None] for t in tables]
                numbers = [Cell((), the(sum(v), "number") if v else []) for v in sums]
            elif process in names:
                numbers = [Cell((), the(t.get(process), "number")) for t in tables]
            else:
                continue
            spinning = [x for x in cpu.get("spinning") or [] if x.get("process") == process]
            threads = Cell(
                [w for x in spinning for w in (str(x.get("thread")), "of a core")],
                [v for x in spinning for v in the(x.get("share"), "ratio")],
            )
            yield [word(s.cells[0]), word(process), *numbers, threads]

    def device(self, s: Statement) -> Iterator[list[Cell]]:
        found: dict[str, list[Any]] = {}
        for c in self.own(self.a["cells"], s.cells[0]):
            if usable(c) and (clock := (c.get("health") or {}).get("device_clock")):
                found.setdefault(c["config"], []).append(clock)
        for clocks in found.values():
            late, busy = ([k[n] for k in clocks] for n in ("late_share", "device_busy_share"))
            slack = [k["slack_us"]["p10"] for k in clocks]
            yield [
                word(s.cells[0]), Cell((), the(len(clocks))), Cell((), the(sum(k["steps"] for k in clocks))),
                Cell((), the(median(k["lateness_us"]["p50"] for k in clocks), "us")), Cell((), the(max(late), "ratio")),
                Cell((), the(min(busy), "ratio") + the(max(busy), "ratio")), Cell((), the(min(slack), "us")),
                Cell((), the(median(k["slack_us"]["p50"] for k in clocks), "us")),
            ]  # fmt: skip

    # Conversations, and what grows with what is cached.
    def conversations(self, s: Statement) -> Iterator[list[Cell]]:
        for c in self.own(self.a["cells"], s.cells[1]):
            if c["phase"] != "c" or c["cell_id"].partition("_")[2] != s.cells[0]:
                continue
            share = c.get("prefix_cache_hit_share")
            ms = [Cell((), estimate((c.get(q) or {}).get("p90"), "of ms")) for q in ("ttft_ms", "tpot_ms")]
            own = {t["metric"]: t for t in self.a["taxes"] if (t["phase"], t["config"], t["cell_id"]) == ("c", c["config"], c["cell_id"])}  # fmt: skip
            lost = "; ".join(map(str, c.get("reasons") or [])) or str(c.get("verdict"))
            none = Cell(
                ("not available", "not measured" if usable(c) else f"its cell does not count ({lost})")
            )
            taxes = [self.tax_cell(own[m]) if m in own else none for m in ("ttft_p90", "tpot_p90")]
            yield [
                word(s.cells[0]), word(s.cells[1]), Cell((), the(c["rate_per_s"], "number")), Cell((), the(c.get("n_window"))),
                Cell((), the(share, "ratio")) if share is not None else word("unknown"), *ms,
                *([Cell(), Cell()] if c["config"] == "plain" else taxes),
            ]  # fmt: skip

        # Of a run that ended without a cell the taxes alone.
        cells = {(c["config"], c["cell_id"]) for c in self.a["cells"]}
        lost = [
            t
            for t in self.own(self.a["taxes"], s.cells[1])
            if t["phase"] == "c" and (t["config"], t["cell_id"]) not in cells
        ]
        for t in lost:
            if t["cell_id"].partition("_")[2] == s.cells[0] and t["metric"] == "ttft_p90":
                own = {x["metric"]: x for x in lost if x["cell_id"] == t["cell_id"]}
                yield [
                    word(s.cells[0]), word(s.cells[1]), Cell((), the(t["rate_per_s"], "number")), word("0"), word("unknown"), Cell(), Cell(),
                    self.tax_cell(own["ttft_p90"]), self.tax_cell(own["tpot_p90"]),
                ]  # fmt: skip

    def growth_slopes(self, s: Statement) -> Iterator[list[Cell]]:
        for e in self.own(self.a["growth"], s.cells[0]):
            for slope in e["slopes"]:
                if slope["quantity"] == QUANTITIES.get(s.cells[1], s.cells[1]):
                    numbers = (
                        _slope(slope.get(k), "us") for k in ("per_1000_cached_blocks", "per_running_request")
                    )
                    yield [word(s.cells[0]), word(s.cells[1]), *numbers, Cell((), the(slope["n_cells"]))]

    def growth_cells(self, s: Statement) -> Iterator[list[Cell]]:
        for e in self.own(self.a["growth"], s.cells[0]):
            for c in e["cells"]:
                hooks, taxes = (c.get("medians_us") or {}).get("connector_total_us"), c.get("p50_taxes") or {}
                blocks = the(c.get("cached_blocks"))
                yield [
                    word(s.cells[0]), Cell(() if blocks else ("unknown",), blocks), Cell((), the(c.get("running"), "number")),
                    Cell() if hooks is None else _slope(hooks, "us", counted=True),
                    *(_slope(taxes.get(m), "ratio", counted=True) if taxes else Cell() for m in ("ttft_p50", "tpot_p50")),
                ]  # fmt: skip


PHASE = {p: phase_word(p) for p in ("a", "b", "b_prime", "c", "d")}
PHASE_OF = {w: p for p, w in PHASE.items()}


def _slope(value: Any, unit: str, *, counted: bool = False) -> Cell:
    """An estimate, or why there is none; ``counted``: with what is behind it."""
    found = estimate(value, unit)
    if found:
        return Cell((), found + (the(value.get("n")) if counted else []))
    return Cell(("not available", str((value or {}).get("reason") or "not measured")))
