"""Converts between the internal unit (integer nanoseconds) and what people read."""

import re

LAST_PORT = 65535
NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
# 146 years: no time is longer, and sums of two smaller ones fit in 64 bits.
MOST_NS = 2**62


def how_many(number: int, noun: str) -> str:
    """Return ``1 problem``, ``8 problems``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def s_to_ns(seconds: float) -> int:
    return round(seconds * NS_PER_S)


# Most tokens in an engine's settings; documents with them are read again (``records/bounds.py``).
MOST_TOKENS = 10**12
# As in vLLM's command line (``human_readable_int``): small letters are decimal, capitals binary.
_SUFFIXES = {letter: 1000**k for k, letter in enumerate("kmgt", 1)}
_SUFFIXES |= {letter.upper(): 1024**k for k, letter in enumerate("kmgt", 1)}


def token_count(value: object) -> int | None:
    """Return a number of tokens as vLLM reads it: 32768, ``"32k"`` (32,000), ``"25.6k"``, ``"32K"`` (32,768).

    None if left to the engine: None, -1, ``"auto"``.

    Raises:
        ValueError: anything else, and more than ``MOST_TOKENS``.
    """
    text = str(value).strip()
    if value is None or text == "-1" or text.lower() == "auto":
        return None
    match = re.fullmatch(r"([0-9]{1,20}(?:\.[0-9]{1,20})?)([kmgtKMGT]?)", text)
    if match is None or isinstance(value, bool):
        raise ValueError(f"{value!r} is no number of tokens")
    number, factor = float(match[1]), _SUFFIXES.get(match[2], 1)
    # Decimals need a decimal suffix; YAML may write a whole number with a point.
    if "." in match[1] and not match[2].islower() and not number.is_integer():
        raise ValueError(f"{value!r} is no whole number of tokens")
    if number * factor > MOST_TOKENS:
        raise ValueError(f"{value!r} is more than {MOST_TOKENS} tokens")
    return int(number * factor)


def ratio_of(text: str) -> float:
    """Return 0.02 for ``"2%"`` and ``"0.02"``.

    Raises:
        ValueError: not a number from 0 to below 1; a bare 2 probably means 2 %.
    """
    number, percent = (text.strip().removesuffix("%").strip(), text.strip().endswith("%"))
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError as error:
        raise ValueError(f"{text!r} is no ratio; give 2% or 0.02") from error
    if not 0 <= value < 1:
        raise ValueError(f"{text!r} is no ratio from 0 to below 1; give 2% or 0.02")
    return value


def is_number(text: str) -> bool:
    """Return whether ``text`` is plain digits for ``int``; ``str.isdigit`` also passes a superscript two."""
    return text.isascii() and text.isdecimal()


def exact_duration(seconds: int) -> str:
    """``3725`` -> ``"1 h 02 min 05 s"``, to the second, so that sums of such texts add up."""
    minutes, rest = divmod(seconds, 60)
    if seconds < 60:
        return f"{rest} s"
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min {rest:02d} s"


def duration_text(seconds: float) -> str:
    """``3725`` -> ``"1 h 02 min"``; for progress lines, never parsed back."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02d} min"
