"""A cell of a table, or a sentence: which words and which numbers it has to hold; and what a number of the aggregate says by itself."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from claim_numbers import misread
from claim_values import Value

Entry = Mapping[str, Any]
METRICS = {"TTFT p90": "ttft_p90", "TPOT p90": "tpot_p90", "TTFT p50": "ttft_p50", "TPOT p50": "tpot_p50", "median step": "step_p50_us",
           "of it in the connector's hooks": "callback_p50_us", "of it elsewhere": "unexplained_us",
           "in the connector's hooks, per step (median)": "callback_p50_us", "elsewhere in a step": "unexplained_us"}  # fmt: skip
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
# What a sentence claims only where it has to.
CLAIMS = re.compile(
    r"\ba (?:tax|gain) for\b|\bneither an? |\balso |\bnot known for\b|\bnot known, since\b|\bit is not known\b|\b[Ww]ithout a number\b|"
    r"\b[Nn]o number for\b|\bwhether it has a tax\b|\bcosts at least\b|\bdotted\b|\bother parts of the step\b|\bin fewer blocks\b|\bover other blocks\b|"
    r"\bdid not keep up\b|\bReference rates carry\b|\bthe lowest rate that was measured\b|\bas far as measured\b|\bis not known\b|"
    r"\bno configuration has one\b|\btitle does not count\b|\btold apart from its first\b|\bstands in where\b|\bhas no number\b|"
    r"\bhave no number\b|\bthe only tax\b|\bno other connector does\b|\bcannot be held against\b|\bof Phase \S+ (?:own )?launch for\b"
)


@dataclass(frozen=True)
class Cell:
    """What one cell has to hold: ``words`` as they stand, and between them ``values`` in this order."""

    words: Sequence[str] = ()
    values: Sequence[Value] = field(default_factory=list)
    # A cell whose other words are another's to judge.
    open: bool = False

    def faults(self, text: str) -> Iterator[str]:
        for words in sorted(filter(None, map(one_line, self.words)), key=len, reverse=True):
            # A number may end where the words begin, and not a word.
            found = re.search(rf"(?<![\w.]){re.escape(words)}(?!\w)", text)
            if found is None:
                yield f"{words!r} is not said"
            else:
                text = f"{text[: found.start()]} ; {text[found.end() :]}"
        yield from misread(text, list(self.values))
        yield from (f"{claim!r} is said and not so" for claim in CLAIMS.findall(text) if self.open)
        if not self.open and (
            others := [w for w in re.findall(r"(?<!\d)[^\W\d_]+", text) if w not in BETWEEN]
        ):
            yield f"{' '.join(others)!r} is said and not so"


def one_line(text: str) -> str:
    return " ".join(str(text).split())


def listed(items: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(items[:-1]), *items[-1:])))


def word(text: object) -> Cell:
    return Cell((one_line(str(text or "")),))


def usable(cell: Entry) -> bool:
    return cell.get("verdict") == "valid" and cell.get("usable") is not False


def phase_word(phase: str) -> str:
    return PHASES.get(phase, phase.upper())


def sign(value: Entry | None) -> int:
    """1 above zero, -1 below it, by the end that is known; else 0."""
    low, high = (value or {}).get("low"), (value or {}).get("high")
    return 1 if low is not None and low > 0 else -1 if high is not None and high < 0 else 0


def is_open(value: Entry) -> bool:
    """Whether nobody can tell where it lies to zero, since the end that would say it is open."""
    return sign(value) == 0 and None in (value.get("low"), value.get("high"))


def verdict_of(value: Entry) -> str:
    """What its interval says; nothing where the aggregate gives it no verdict."""
    if str(value.get("verdict") or "") in ("", "unavailable"):
        return ""
    if is_open(value):
        return "undetermined"
    # A part of a step is neither a tax nor a gain by itself.
    part = value.get("metric") in ("callback_p50_us", "unexplained_us")
    words = (
        ("not told apart from zero", "above zero", "below zero") if part else ("no tax found", "tax", "gain")
    )
    return words[sign(value)]
