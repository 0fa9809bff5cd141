"""Rows of a page's tables: whose numbers each row has to hold, cell by cell, in which order and with which words.

A row names its own entry of the aggregate: a configuration, a latency, a rate, a shape. What stands in its cells is worked out
from that entry alone, so the number of another row, which may read alike, is not accepted. ``report`` is not asked.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from claim_cells import (
    METRICS,
    SOURCES,
    Cell,
    Entry,
    behind,
    holds,
    is_of_b_prime,
    is_open,
    launch_of,
    listed,
    no_number,
    of_shape,
    phase_word,
    sign,
    usable,
    verdict_of,
    word,
)
from claim_numbers import estimate, the
from page_statements import Statement


class TaxRows:
    """Of one aggregate: what each row of the tables under *Taxes* says that holds estimates."""

    def __init__(self, aggregate: Mapping[str, Any]) -> None:
        self.a = aggregate
        self.labels = {c: str(v.get("label") or c) for c, v in (aggregate.get("configs") or {}).items()}
        self.alpha = 1 - (aggregate["provenance"].get("confidence") or 0.95)

    def label(self, config: object) -> str:
        return self.labels.get(str(config), str(config))

    def own(self, entries: list[Entry], label: str) -> list[Entry]:
        """Those whose configuration has this label."""
        return [e for e in entries if self.label(e["config"]) == label]

    # What a tax reads like.
    def standing(self, **keys: object) -> Entry | None:
        found = (t for t in self.a.get("main_taxes", ()) if all(t.get(k) == v for k, v in keys.items()))
        return next((t for t in found if t["point"] is not None), None)

    def lost(self, own: Entry | None, **keys: object) -> Entry | None:
        """What a cell says whose place has no tax: no number of its own stands in for one that blocks lost."""
        found = (t for t in self.a.get("main_taxes", ()) if all(t.get(k) == v for k, v in keys.items()))
        chosen = next((t for t in found if t["point"] is None), None)
        return own if chosen is None or (own is not None and own["point"] is None) else chosen

    def of_lost_shape(self, own: Entry | None, **place: object) -> Entry | None:
        """A shape's cell that is lost empties no place: what stands there says why it has no number, unless it is lost as well."""
        standing = self.lost(None, **place)
        if own is None or self.there(own) or standing is None or not self.there(standing):
            return self.lost(own, **place)
        return standing

    def there(self, tax: Entry) -> bool:
        """Whether the cell of a tax counts; one over blocks has none of its own."""
        at = (tax["config"], tax["phase"], tax["cell_id"])
        return tax["phase"] is None or any(
            (c["config"], c["phase"], c["cell_id"]) == at and usable(c) for c in self.a["cells"]
        )

    def tax_cell(self, tax: Entry | None, told: Entry | None = None, *, main: bool = False) -> Cell:
        """
        Args:
            told: what Phase A's cell says, of a main tax that may be another launch's.
        """
        if tax is None or tax["point"] is None:
            lost = told if tax is None else tax
            return Cell(("not available", str((lost or {}).get("reason") or "not measured")))
        verdict = verdict_of(tax)
        once = not str(tax.get("kind")).startswith("over") and verdict != ""
        words = [verdict + (", of one launch" if once else "")]
        sizes = the(tax.get("n")) + (the(tax.get("n_plain")) if tax.get("unit") != "us" else [])
        if main and tax.get("blocks") is not None:
            words.append(f"over {tax['blocks']} blocks of launches")
        elif main and tax.get("phase") not in ("a", None):
            words.append(f"by {launch_of(str(tax['phase']))}")
        words += self.flagged(tax)
        words += ["did not keep up"] if tax.get("overloaded") else []
        words += [f"holds {tax['holds']}"] if tax.get("holds") else []
        words += [str(tax.get("reason") or "an end is not known")] if is_open(tax) else []
        found = (self.a.get("put_in") or {}).get("taxes", ()) if main else ()
        place = [tax.get(k) for k in ("config", "metric", "reference")]
        own = next(
            (r["tax"] for r in found if [r[k] for k in ("config", "metric", "reference")] == place), None
        )
        if own is not None:
            words += ["put in", {True: "inside", False: "outside the interval", None: ""}[holds(own, tax)]]
        return Cell(words, estimate(tax, str(tax.get("unit") or "ratio")) + sizes + the(own, "ratio"))

    def flagged(self, tax: Entry) -> list[str]:
        """Flags of the cells behind it that not every cell carries, and whose they are where one side alone has them."""
        cells, found = self.a["cells"], dict[str, set[str]]()
        alone = tax["metric"] == "callback_p50_us"  # plain has no hooks
        for c in (c for c in behind(self.a, tax) if not alone or c["config"] == tax["config"]):
            for flag in c.get("flags") or []:
                found.setdefault(flag, set()).add("own" if c["config"] == tax["config"] else "plain")
        whose = {"own": " (its own)", "plain": " (plain's)"}
        told = [
            flag + (whose[min(sides)] if len(sides) == 1 else "")
            for flag, sides in sorted(found.items())
            if not all(flag in (c.get("flags") or []) for c in cells)
        ]
        return [f"flagged {listed(told)}"] if told else []

    def whose(self, config: str, reference: str, heads: list[str]) -> list[str]:
        """Once per row: which launch stands in for Phase A's, in which columns where not in all, and why."""
        found, known = dict[str, list[str]](), list[str]()
        for head in heads:
            keys = {"config": config, "metric": METRICS[head], "reference": reference}
            tax = self.standing(**keys)
            if tax is not None and tax["point"] is not None:
                known.append(head)
            if tax is not None and tax.get("blocks") is None and tax.get("phase") != "a":
                own = (
                    t
                    for t in self.a["taxes"]
                    if t["phase"] == "a" and all(t.get(k) == v for k, v in keys.items())
                )
                reason = str(next(own, {}).get("reason") or "")
                note = f"by {launch_of(str(tax['phase']))}"
                found.setdefault(f"{note}, since {reason}" if reason else note, []).append(head)
        for note in list(found):
            if longer := next((o for o in found if o.startswith(f"{note}, since ")), None):
                found[longer] = sorted(found[longer] + found.pop(note), key=heads.index)
        return [note if own == known else f"{', '.join(own)} {note}" for note, own in found.items()]

    def taxes(self, s: Statement) -> Iterator[list[Cell]]:
        reference = s.section.split("/ At ")[1].split(",")[0].split()[0]
        names = [p.strip() for p in s.cells[0].split(" ; ")]
        config = next((p for p in names[1:] if p in self.labels), names[-1])
        cells = [
            Cell(
                (
                    self.label(config),
                    config,
                    *self.whose(config, reference, s.heads[1:]),
                )
            )
        ]
        for head in s.heads[1:]:
            keys = {"config": config, "metric": METRICS[head], "reference": reference}
            told = next((t for t in self.a["taxes"] if t["phase"] == "a" and all(t.get(k) == v for k, v in keys.items())), None)  # fmt: skip
            chosen = (t for t in self.a["main_taxes"] if all(t.get(k) == v for k, v in keys.items()))
            told = next(chosen, None) or self.lost(told, **keys)
            cells.append(self.tax_cell(self.standing(**keys), told, main=True))
        yield cells

    def shapes(self, s: Statement) -> Iterator[list[Cell]]:
        places: dict[tuple[Any, ...], dict[str, Entry]] = {}
        keys = ("config", "reference", "rate_per_s", "input_tokens", "output_tokens")
        for tax in self.own(self.a["taxes"], s.cells[0]):
            if tax["phase"] in ("b", "b_prime") and tax["reference"] == s.cells[1]:
                places.setdefault(tuple(tax[k] for k in keys), {})[tax["metric"]] = tax
        for (config, _, rate, tokens_in, tokens_out), found in places.items():
            place = {"config": config, "rate_per_s": rate, "input_tokens": tokens_in, "output_tokens": tokens_out}  # fmt: skip
            if (f"{rate:g}", f"{tokens_in:,} x {tokens_out:,}") == (s.cells[2], s.cells[3]):
                cells = []
                for metric in ("ttft_p90", "tpot_p90"):
                    chosen = self.standing(metric=metric, **place) if metric in found else None
                    own = chosen or self.of_lost_shape(found.get(metric), metric=metric, **place)
                    cell = self.tax_cell(own, main=chosen is not None)
                    cells.append(self.in_place(cell, own, found.get(metric)))
                yield [
                    word(s.cells[0]),
                    word(s.cells[1]),
                    Cell((), the(rate)),
                    Cell((), the(tokens_in) + the(tokens_out)),
                    *cells,
                ]

    @staticmethod
    def in_place(cell: Cell, tax: Entry | None, own: Entry | None) -> Cell:
        """Of a tax of another launch than that of the shape's own cell; a reason says the phase whose it is."""
        if tax is None or own is None or tax["phase"] == own["phase"]:
            return cell
        if tax["point"] is None:
            head, reason = cell.words
            named = tax["phase"] is None or re.search("phase|block", reason)
            return cell if named else Cell((f"{head}", f"in phase {phase_word(tax['phase'])}: {reason}"))
        once = tax["phase"] == "a"
        note = f"in place of {launch_of(str(own['phase']))}"
        return Cell([*cell.words, *(["by phase A's launch"] if once else []), note], cell.values)

    def twice(self, s: Statement) -> Iterator[list[Cell]]:
        found: dict[tuple[Any, ...], dict[str, Entry]] = {}
        for t in self.own(self.a["taxes"], s.cells[0]):
            if t["reference"] == "ref_safe" and t["metric"] in ("ttft_p90", "tpot_p90"):
                place = (t["config"], t["rate_per_s"], t["input_tokens"], t["output_tokens"], t["metric"])
                found.setdefault(place, {})[t["phase"]] = t
        both = {k: v for k, v in found.items() if {"a", "b"} <= v.keys()}
        for config in {k[0] for k in both}:
            own = [
                v for m in ("ttft_p90", "tpot_p90") for k, v in both.items() if (k[0], k[-1]) == (config, m)
            ]
            yield [word(s.cells[0]), *(self.of_one_launch(v[p]) for v in own for p in ("a", "b"))]

    def of_one_launch(self, tax: Entry) -> Cell:
        """A launch's own number; it is no tax where none stands for its rate."""
        cell = self.tax_cell(tax)
        place = {k: tax[k] for k in ("config", "metric", "reference")}
        if tax["point"] is None or self.standing(**place) is not None or self.lost(None, **place) is None:
            return cell
        return Cell(["of one launch; no tax stands for this rate and shape", *cell.words[1:]], cell.values)

    # Over blocks of launches.
    def entry(self, title: str) -> Iterator[Entry]:
        """Of ``repeats``, by ``TTFT p90 at ref_safe, 4 req/s, 4 blocks``."""
        for e in self.a["repeats"]:
            name = next((n for n, m in METRICS.items() if m == e["metric"]), e["metric"])
            if title.startswith(f"{name} at {e['reference']}, {e['rate_per_s']:g} req/s"):
                yield e

    def repeats(self, s: Statement) -> Iterator[list[Cell]]:
        title = s.section.split(" / ")[2]
        for e in self.entry(title):
            for t in self.own(e["taxes"], s.cells[0]):
                equal = t.get("at_equal_host_speed") or {}
                work = equal.get("work") or {}
                told = estimate(work) if sign(work) else []
                blocks = {phase_word(b): v for b, v in (t.get("by_block") or {}).items() if v is not None}
                of = {"config": t["config"], **{k: e[k] for k in ("metric", "reference", "rate_per_s")}}
                main = self.standing(**of) or {}
                sizes = the(main.get("n")) + the(main.get("n_plain"))
                cells = {
                    "Tax": Cell(() if t["point"] is not None else ("–",), estimate(t) + sizes),
                    "": word(verdict_of(t)),
                    "Adjusted for drift": Cell((), estimate(t.get("adjusted"))),
                    "At equal speed of the host": Cell(
                        ("host's work",) if told else (), estimate(equal) + told
                    ),
                    "Block by block": Cell(
                        list(blocks), [v for x in blocks.values() for v in the(x, "ratio")]
                    ),
                }
                yield [word(s.cells[0]), *(cells[h] for h in s.heads[1:])]
            yield from self.without_blocks(s, e)

    def without_blocks(self, s: Statement, e: Entry) -> Iterator[list[Cell]]:
        """A configuration that was not skipped and has no tax over these blocks."""
        here = {t["config"] for t in e["taxes"]} | {"plain", "plain_again"}
        for config, value in self.a["configs"].items():
            if config in here or value.get("status") == "skipped" or self.label(config) != s.cells[0]:
                continue
            keys = ("metric", "reference", "rate_per_s")
            own = [
                t for t in self.a["main_taxes"] if t["config"] == config and all(t[k] == e[k] for k in keys)
            ]
            why = "too few of these blocks have its cell, so its tax is of one launch"
            if own and own[-1]["point"] is None:
                why = str(own[-1].get("reason"))
                phases = {
                    c["phase"] for c in self.a["cells"]
                    if c["config"] == config and usable(c) and of_shape(c) == of_shape(own[-1]) and not c["cell_id"].endswith("_unrecorded")
                }  # fmt: skip
                failed = {f["reason"] for f in self.a["failed_blocks"]}
                few = 0 if why in failed else len(phases & {b for t in e["taxes"] for b in t["by_block"]})
                if 0 < few < 3:
                    why = f"{few} of these blocks {'has' if few == 1 else 'have'} its cell, and 3 are needed; {why}"
            cells = {
                "Tax": word("not available"), "": Cell(), "Adjusted for drift": word("–"),
                "At equal speed of the host": word("–"),
                # Of one that was never measured its status says it.
                "Block by block": word(why if own else no_number(value)),
            }  # fmt: skip
            yield [word(s.cells[0]), *(cells[h] for h in s.heads[1:])]

    def host(self, s: Statement) -> Iterator[list[Cell]]:
        title = s.section.split("The host over")[1]
        for e in self.a["host_drift"]:
            if not title.endswith(f"at {e['reference']}, {e['rate_per_s']:g} req/s"):
                continue
            lines = [
                (f"plain's {n}", [], r["drift"], "ratio")
                for r in self.a["repeats"]
                for n, m in METRICS.items()
                if m == r["metric"] and r["rate_per_s"] == e["rate_per_s"] and r.get("drift")
            ]
            for source in e["sources"]:
                unit = {"C": "degrees"}.get(source["unit"], source["unit"])
                name = next((n for n, k in SOURCES.items() if k == source["source"]), source["source"])
                lines.append((name, the(source["mean"], unit), source, unit))
            for k, (name, mean, line, unit) in enumerate(lines):
                # What plain's percentile changes by is a ratio; what a share does, a difference.
                change = "ratio" if k < len(lines) - len(e["sources"]) else "pp"
                if name == s.cells[0]:
                    p = line.get("p_value")
                    changes = p is not None and p < self.alpha
                    yield [
                        word(name), Cell((), mean), Cell((), estimate(line.get("change"), {"ratio": change}.get(unit, unit))), Cell((), the(p, "p")),
                        word("changes" if changes else "no visible change"),
                    ]  # fmt: skip

    def amplification(self, s: Statement) -> Iterator[list[Cell]]:
        groups: dict[tuple[Any, ...], dict[str, Entry]] = {}
        for e in self.own(self.a["amplification"], s.cells[0]):
            at = tuple(e.get(k) for k in ("input_tokens", "output_tokens", "rate_per_s", "safe_rate_per_s"))
            groups.setdefault(at, {})[e["metric"]] = e
        for (n_in, n_out, load, safe), own in groups.items():
            rates = Cell((), [] if load is None else the(load, "rate") + the(safe, "rate"))
            yield [word(s.cells[0]), Cell((), the(n_in) + the(n_out)), rates, *self._added(own)]

    def _added(self, own: dict[str, Entry]) -> Iterator[Cell]:
        for metric in ("ttft_p90", "tpot_p90"):
            e = own.get(metric)
            lost = ("not available", str((e or {}).get("reason") or "")) if e else ()
            kind = ((e or {}).get("kind") or "of one launch",)
            if e and e["point"] is not None:
                kind = (
                    tuple(self.two_launches(e))
                    if "over" in kind[0] and self.two_launches(e)
                    else (*kind, *self.two_launches(e))
                )
            yield (
                Cell(kind, [*estimate(e, "pp"), *the(e["n"])]) if e and e["point"] is not None else Cell(lost)
            )

    def two_launches(self, e: Entry) -> list[str]:
        """Whose less whose, where the tax at either reference rate is of another phase's launch."""
        if is_of_b_prime(self.a, e):
            return [f"each, {self.own_of('b_prime')} less {self.own_of('b')}"]
        both = [
            self.standing(config=e["config"], metric=e["metric"], reference=r) or {}
            for r in ("ref_load", "ref_safe")
        ]
        blocks = [t.get("blocks") for t in both]
        if None not in blocks and blocks[0] != blocks[1]:
            fewer, more = ("ref_load", "ref_safe") if blocks[0] < blocks[1] else ("ref_safe", "ref_load")
            return [f"{e['kind']} at {fewer} and {max(blocks)} at {more}"]
        load, safe = (t["phase"] if t.get("blocks") is None and t.get("phase") else "" for t in both)
        return (
            [f"each, {self.own_of(load)} less {self.own_of(safe)}"] if load and safe and load != safe else []
        )

    @staticmethod
    def own_of(phase: str) -> str:
        word = phase_word(phase)
        return f"the launch of phase {word}" if word.endswith("'") else f"phase {word}'s"

    # What a tax is made of.
    def decomposition(self, s: Statement) -> Iterator[list[Cell]]:
        for e in self.own(self.a["decomposition"], s.cells[0]):
            name = next(n for n, m in METRICS.items() if m == e["metric"])
            kind = "" if e["total"]["point"] is None else e.get("kind") or "of one launch"
            cells = []
            for part in (e[p] for p in ("total", "flags", "framework", "implementation")):
                cell = self._part(part)
                if part["point"] is not None and part.get("n"):
                    cell = Cell(cell.words, [*cell.values, *the(part["n"])])
                fewer = part["point"] is not None and part.get("kind") not in (None, kind)
                cells.append(Cell([*cell.words, str(part["kind"])], cell.values) if fewer else cell)
            if (unlike := self._unlike(e)) and e["implementation"]["point"] is not None:
                cells[-1] = Cell([unlike], cells[-1].values)
            own, framework, rest = self._launches(e)
            if own == framework:
                kinds = (kind, own) if kind and own else (kind,)
            else:
                kinds = (kind,)
                cells = [
                    Cell([*c.words, *([str(e[p]["kind"])] if e[p].get("kind") else []), w], c.values)
                    if w and e[p]["point"] is not None
                    else c
                    for c, w, p in zip(
                        cells,
                        (own, "", framework, rest),
                        ("total", "flags", "framework", "implementation"),
                        strict=True,
                    )
                ]
            yield [word(s.cells[0]), Cell((name, *kinds)), *cells]

    def _unlike(self, e: Entry) -> str:
        """Over how many blocks a tax is less the no-op connector's, where these are not as many."""
        of = {"metric": e["metric"], "reference": "ref_safe"}
        whole, framework = (
            (self.standing(config=c, **of) or {}).get("blocks") for c in (e["config"], "noop_connector")
        )
        unlike = None not in (whole, framework) and whole != framework
        return f"over {whole} blocks less over {framework}" if unlike else ""

    def _launches(self, e: Entry) -> tuple[str, str, str]:
        """By whose launch a tax, the no-op connector's and what is left are, where one is not by Phase A's."""
        of = {"metric": e["metric"], "reference": "ref_safe"}
        taxes = [self.standing(config=c, **of) or {} for c in (e["config"], "noop_connector")]
        once = [self.own_of(t["phase"]) if t.get("blocks") is None and t.get("phase") else "" for t in taxes]
        if not {*once} - {"", "phase A's"}:
            return "", "", ""
        own, framework = (
            f"by {launch_of(str(t['phase']))}" if t.get("blocks") is None and t.get("phase") else ""
            for t in taxes
        )
        rest = own if once[0] == once[1] else f"each, {once[0]} less {once[1]}"
        return own, framework, rest

    def two_parts(self, s: Statement) -> Iterator[list[Cell]]:
        for e in self.own(self.a["two_parts"], s.cells[0]):
            name = next(n for n, m in METRICS.items() if m == e["metric"])
            cells = {p: self._part(e[p], e["unit"], more=True) for p in ("total", "framework", "rest")}
            own, framework, rest = self._launches(e)
            if own or framework:
                told = [own, framework, rest if e["rest"]["kind"] else ""]
                cells = {
                    p: Cell([*c.words, w], c.values) for (p, c), w in zip(cells.items(), told, strict=True)
                }
            if (unlike := self._unlike(e)) and e["rest"]["kind"]:
                cells["rest"] = Cell([unlike], cells["rest"].values)
            yield [word(s.cells[0]), word(name), *cells.values()]

    @staticmethod
    def _part(part: Entry, unit: str = "ratio", *, more: bool = False) -> Cell:
        more = more and part.get("kind") is not None
        kind, sizes = ([str(part["kind"])], the(part.get("n"))) if more else ([], [])
        if part["point"] is None:
            return Cell(["not available", str(part.get("reason") or ""), *kind], sizes)
        return Cell(kind, estimate(part, unit) + sizes)

    def settings(self, s: Statement) -> Iterator[list[Cell]]:
        seen = self.a["engine_diff"]
        for config in dict.fromkeys((*seen, *self.a["configs"])):
            changes = seen.get(config)
            if config != "plain" and changes is None and self.label(config) == s.cells[0]:
                yield [word(s.cells[0]), word("not known")]
            elif config != "plain" and changes is not None and self.label(config) == s.cells[0]:
                told = [
                    f"{k.removeprefix('log.')}: {v.get('plain')} → {v.get('own')}" for k, v in changes.items()
                ]
                yield [word(s.cells[0]), Cell(told or ["none"])]

    def attribution(self, s: Statement) -> Iterator[list[Cell]]:
        said = s.section.split("Where the microseconds go / ")[-1]
        for e in self.a["attribution"]:
            if not said.startswith(f"{self.label(e['config'])}:"):
                continue
            if s.heads[0] == "Part":
                for p in e["parts"]:
                    if p["label"] == s.cells[0]:
                        lost = () if p["point"] is not None else ("not available",)
                        yield [
                            word(p["label"]),
                            Cell((*lost, "of one launch"), estimate(p, "of us") + the(p["n"])),
                        ]
                continue
            for h in e["hooks"]:
                if h["hook"] == s.cells[0]:
                    step, call, token = (
                        Cell((), the(h[k], "of us")) for k in ("us_per_step", "us_per_call", "us_per_token")
                    )
                    calls = Cell((), the(h["calls_per_step"], "number"))
                    yield [word(h["hook"]), calls, step, self._cpu(h), call, token]

    @staticmethod
    def _cpu(hook: Entry) -> Cell:
        """Ends at the wall time, since reading a thread's CPU time takes some itself."""
        cpu, wall = hook["cpu_us_per_step"], hook["us_per_step"]
        if cpu is None:
            return Cell(("–",))
        n = the(hook["n_cpu_steps"])
        return Cell(("all of it",), n) if cpu >= wall else Cell((), the(cpu, "of us") + n)

    def observer(self, s: Statement) -> Iterator[list[Cell]]:
        for e in self.own(self.a["observer_effect"], s.cells[0]):
            name = next((n for n, m in METRICS.items() if m == e["metric"]), e["metric"])
            if name == s.cells[1]:
                told = ((v, estimate(v)) for v in (e.get(k) for k in ("effect", "tax", "tax_unrecorded")))
                numbers = (Cell((), v + the(e["n"]) if v else v) for e, v in told)
                yield [word(s.cells[0]), word(name), *numbers]
