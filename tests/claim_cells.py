"""A cell of a table, or a sentence: which words and which numbers it has to hold; and what a number of the aggregate says by itself."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from claim_numbers import misread, without_numbers
from claim_values import Value

Entry = Mapping[str, Any]
METRICS = {"TTFT p90": "ttft_p90", "TPOT p90": "tpot_p90", "TTFT p50": "ttft_p50", "TPOT p50": "tpot_p50", "median step": "step_p50_us",
           "of it in the connector's hooks": "callback_p50_us", "of it elsewhere": "unexplained_us",
           "in the connector's hooks, per step (median)": "callback_p50_us", "elsewhere in a step": "unexplained_us",
           "in the connector's hooks, also those between two steps": "callback_p50_us",
           "median step less these hooks": "unexplained_us"}  # fmt: skip
# Called between two steps, so in none.
BETWEEN_HOOKS = ("on_new_request", "has_pending_push_work", "reset_cache")
PHASES = {"a": "A", "b": "B", "b_prime": "B'", "c": "C", "d": "D"}
SOURCES = {
    "CPU time stolen": "steal_share",
    "CPU clock": "cpu_mhz_p50",
    "CPU time of a fixed piece of work": "cpu_work_us_mean",
    "GPU clock (SM)": "gpu_sm_mhz_p50",
    "GPU temperature": "gpu_temperature_c_max",
    "GPU power": "gpu_power_w_mean",
}
# Words between the numbers of any cell.
BETWEEN = {"n", "and", "to", "of", "in", "req", "s", "pp", "µs", "MHz", "C", "W", "x", "p", "no", "interval", "lower", "upper", "bound", "ok", "dropped", "failed"}  # fmt: skip
# Of a sentence: those that lists are made with.
JOINING = {"and", "of", "to"}


@dataclass(frozen=True)
class Cell:
    """What one cell, or one sentence, has to hold: ``words`` as they stand, and between them ``values`` in this order; nothing else.

    Attributes:
        may: of a sentence what it may say beside that, since it is true of every page.
    """

    words: Sequence[str] = ()
    values: Sequence[Value] = field(default_factory=list)
    may: Sequence[str] | None = None

    def faults(self, text: str) -> Iterator[str]:
        wanted = [(words, True) for words in map(one_line, self.words) if words]
        wanted += [(words, False) for words in self.may or ()]
        for words, needed in sorted(wanted, key=lambda w: len(w[0]), reverse=True):
            # A number may end where the words begin, and not a word.
            text, n = re.subn(rf"(?<![\w.]){re.escape(words)}(?!\w)", " ; ", text, count=int(needed))
            if needed and not n:
                yield f"{words!r} is not said"
        yield from misread(text, list(self.values))
        if self.may is None:
            others = [w for w in re.findall(r"(?<!\d)[^\W\d_]+", text) if w not in BETWEEN]
        else:
            others = [w for w in re.findall(r"[^\W\d_]+", without_numbers(text)) if w not in JOINING]
        if others:
            yield f"{' '.join(others)!r} is said and not so"

    def within(self, must: Sequence[str], may: Sequence[str]) -> "Cell":
        """With what every sentence of its place has to say, and what it may."""
        return replace(self, words=[*self.words, *must], may=[*(self.may or ()), *may])


def is_of_b_prime(aggregate: Mapping[str, Any], e: Entry) -> bool:
    """Whether what load adds is of another shape than Phase A's, or of none that was said."""
    shape = next((c["input_tokens"], c["output_tokens"]) for c in aggregate["cells"] if c["phase"] == "a")
    return "input_tokens" in e and (e["input_tokens"], e["output_tokens"]) != shape


def one_line(text: str) -> str:
    return " ".join(str(text).split())


def listed(items: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(items[:-1]), *items[-1:])))


def word(text: object) -> Cell:
    return Cell((one_line(str(text or "")),))


def of_shape(e: Entry) -> tuple[object, ...]:
    """Rate and shape of a tax or a cell."""
    return e["rate_per_s"], e["input_tokens"], e["output_tokens"]


def usable(cell: Entry) -> bool:
    return cell.get("verdict") == "valid" and cell.get("usable") is not False


def has_gap(aggregate: Entry, config: str, knee: float) -> bool:
    """Whether it has no usable cell of Phase A at a rate below ``knee`` at which another configuration has one."""
    rates: dict[str, set[float]] = {}
    for c in aggregate["cells"]:
        if c["phase"] == "a" and usable(c) and c["rate_per_s"]:
            rates.setdefault(c["config"], set()).add(c["rate_per_s"])
    return any(r < knee for r in set().union(*rates.values()) - rates.get(config, set()))


def behind(aggregate: Entry, tax: Entry) -> list[Entry]:
    """The cells that a tax is made of: of one launch its own and plain's, over blocks those of the blocks that it lists, plain's both."""
    phases, configs = {tax["phase"]}, {"plain", tax["config"]}
    if tax.get("blocks") is not None:
        at = [e for e in aggregate["repeats"] if (e["rate_per_s"], e["metric"]) == (tax["rate_per_s"], tax["metric"])]  # fmt: skip
        phases = {b for e in at for t in e["taxes"] if t["config"] == tax["config"] for b in t["by_block"]}
        configs.add("plain_again")
    return [
        c for c in aggregate["cells"]
        if c["config"] in configs and c["phase"] in phases and c["cell_id"] == tax["cell_id"] and usable(c)
    ]  # fmt: skip


def phase_word(phase: str) -> str:
    return PHASES.get(phase, phase.upper())


def sign(value: Entry | None) -> int:
    """1 above zero, -1 below it, by the end that is known; else 0."""
    low, high = (value or {}).get("low"), (value or {}).get("high")
    return 1 if low is not None and low > 0 else -1 if high is not None and high < 0 else 0


def is_open(value: Entry) -> bool:
    """Whether nobody can tell where it lies to zero, since the end that would say it is open."""
    return sign(value) == 0 and None in (value.get("low"), value.get("high"))


def holds(number: float | None, value: Entry) -> bool | None:
    """Whether the interval holds a number; None where either is not there."""
    low, high = value.get("low"), value.get("high")
    return None if None in (number, low, high) else low <= number <= high  # type: ignore[operator]


def is_wide(value: Entry) -> bool:
    """Whether the interval of a ratio holds zero and more than 100 points, so that it says neither of a tax nor of none."""
    low, high = value.get("low"), value.get("high")
    ratio = str(value.get("unit") or "ratio") == "ratio"
    return ratio and None not in (low, high) and sign(value) == 0 and high - low > 1  # type: ignore[operator]


def called_between(aggregate: Entry) -> bool:
    """Whether some hook takes time between two steps."""
    hooks = (h for e in aggregate["attribution"] for h in e["hooks"] if round(h.get("us_per_step") or 0))
    return any(h["hook"].split("/")[-1] in BETWEEN_HOOKS for h in hooks)


def launch_of(phase: str) -> str:
    """Whose launch, as a sentence names it."""
    name = phase_word(phase)
    return f"the launch of phase {name}" if name == "B'" else f"phase {name}'s launch"


def verdict_of(value: Entry) -> str:
    """What its interval says; nothing where the aggregate gives it no verdict."""
    if str(value.get("verdict") or "") in ("", "unavailable"):
        return ""
    if is_open(value):
        return "undetermined"
    if is_wide(value):
        return "not resolved here"
    # A part of a step is neither a tax nor a gain by itself.
    part = value.get("metric") in ("callback_p50_us", "unexplained_us")
    words = (
        ("not told apart from zero", "above zero", "below zero") if part else ("no tax found", "tax", "gain")
    )
    return words[sign(value)]


def no_number(value: Entry | None) -> str:
    """Why a configuration has none, behind its name; ``value``: its entry in ``configs``, None of one that is not in the campaign."""
    if value is None:
        return "it is not part of this campaign"
    status = str(value.get("status") or "missing")
    reason = str(value.get("reason") or "").removeprefix(f"{status}: ")
    if status == "missing":
        return f"it was {reason or 'not measured'}"
    if status == "failed" and reason.startswith("failed"):
        return f"it {reason}"
    words = {
        "measured": "it has no usable number here",
        "partial": "it was measured in part only",
        "skipped": "it was skipped",
        "failed": "it failed",
    }
    return words.get(status, f"it is {status}") + (f": {reason}" if reason else "")
