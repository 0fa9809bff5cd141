"""Distributions of prompt and output lengths: text -> token counts, drawn by arrival index.

==============================  =============================================================
``512``, ``constant:512``       always
``uniform:100,2000``            every length from 100 to 2000 alike
``normal:1024,256``             mean and standard deviation
``lognormal:1024,800``          mean and standard deviation of the lengths themselves
``file:lengths.txt``            drawn from the lines of a file, with replacement
==============================  =============================================================

``normal`` and ``lognormal`` take two further numbers, the least and the largest length, to
which values are clipped.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from connector_tax.base.errors import ConfigError
from connector_tax.base.files import read_whole
from connector_tax.base.seeds import stream
from connector_tax.base.units import is_number

# Lengths are drawn in whole blocks, so that a longer cell draws the same first lengths.
BLOCK = 1024
MOST_TOKENS = 10_000_000
# Digits of a length; Python refuses to parse thousands of them.
MOST_DIGITS = 12
# Default upper bound: longer prompts are megabytes each and not what an unbounded distribution is meant for.
WITHOUT_END = 1_000_000

Ints = NDArray[np.int64]
Draw = Callable[[np.random.Generator], Ints]


@dataclass(frozen=True, slots=True)
class Distribution:
    """One parsed distribution.

    Attributes:
        draw: ``BLOCK`` lengths, shape (BLOCK,), tokens.
        mean: approximate mean of the draws, for messages and for choosing workers.
    """

    text: str
    draw: Draw
    mean: float


def parse_lengths(text: str) -> Distribution:
    """Parse a distribution.

    Raises:
        ConfigError: unknown distribution or invalid numbers.
    """
    family, _, arguments = text.partition(":")
    if not arguments and is_number(family):
        family, arguments = "constant", family
    if family == "file":
        return _from_file(text, Path(arguments))
    if family not in _KINDS:
        raise ConfigError(
            f"lengths {text!r}: give one of {', '.join((*_KINDS, 'file'))}, such as {_EXAMPLE}."
        )
    try:
        numbers = [float(number) for number in arguments.split(",")]
    except ValueError as error:
        raise ConfigError(f"lengths {text!r}: numbers stand behind {family}:, such as {_EXAMPLE}.") from error
    if not all(math.isfinite(n) and 0 <= n <= MOST_TOKENS for n in numbers):
        raise ConfigError(f"lengths {text!r}: every number is from 0 to {MOST_TOKENS}.")
    return _KINDS[family](text, numbers)


class Lengths:
    """Lengths of one cell's arrivals, with random access."""

    def __init__(self, distribution: Distribution, seed: int, name: str) -> None:
        self._draw = distribution.draw
        self._seed, self._name = seed, name
        self._block, self._lengths = -1, np.empty(0, dtype=np.int64)

    def of(self, k: int) -> int:
        """Return the tokens of arrival ``k``, at least 1."""
        block, row = divmod(k, BLOCK)
        if block != self._block:
            self._block, self._lengths = block, self._draw(stream(self._seed, "lengths", self._name, block))
        return int(self._lengths[row])


def _rounded(values: NDArray[np.float64], low: float, high: float) -> Ints:
    return np.clip(np.round(values), max(low, 1.0), high).astype(np.int64)


def _constant(text: str, numbers: list[float]) -> Distribution:
    if len(numbers) != 1 or numbers[0] < 1 or not numbers[0].is_integer():
        raise ConfigError(f"lengths {text!r}: one whole number of 1 or more is wanted.")
    return Distribution(text, lambda rng: np.full(BLOCK, int(numbers[0]), dtype=np.int64), numbers[0])


def _uniform(text: str, numbers: list[float]) -> Distribution:
    if len(numbers) != 2 or not 1 <= numbers[0] <= numbers[1] or not all(n.is_integer() for n in numbers):
        raise ConfigError(
            f"lengths {text!r}: two whole numbers are wanted, the least length and the largest."
        )
    low, high = (int(n) for n in numbers)
    return Distribution(text, lambda rng: rng.integers(low, high + 1, BLOCK), (low + high) / 2)


def _bounds(text: str, numbers: list[float]) -> tuple[float, float, float, float]:
    if len(numbers) not in (2, 4) or numbers[0] < 1:
        raise ConfigError(
            f"lengths {text!r}: mean and standard deviation are wanted, and then, if at all, the least and"
            " the largest length."
        )
    low, high = numbers[2:] or (1.0, float(WITHOUT_END))
    if not 1 <= low <= numbers[0] <= high:
        raise ConfigError(f"lengths {text!r}: the mean has to lie between the least length and the largest.")
    return numbers[0], numbers[1], low, high


def _normal(text: str, numbers: list[float]) -> Distribution:
    mean, deviation, low, high = _bounds(text, numbers)
    return Distribution(text, lambda rng: _rounded(rng.normal(mean, deviation, BLOCK), low, high), mean)


def _lognormal(text: str, numbers: list[float]) -> Distribution:
    mean, deviation, low, high = _bounds(text, numbers)
    variance = math.log1p((deviation / mean) ** 2)
    mu, sigma = math.log(mean) - variance / 2, math.sqrt(variance)
    return Distribution(text, lambda rng: _rounded(rng.lognormal(mu, sigma, BLOCK), low, high), mean)


def _from_file(text: str, path: Path) -> Distribution:
    try:
        lines = read_whole(path).decode().split()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"lengths {text!r}: {path} cannot be read ({error}).") from error
    invalid = next(
        (
            word
            for word in lines
            if len(word) > MOST_DIGITS or not is_number(word) or not 1 <= int(word) <= MOST_TOKENS
        ),
        None,
    )
    if invalid is not None or not lines:
        fault = "holds nothing" if invalid is None else f"has {invalid[:40]!r}"
        raise ConfigError(f"lengths {text!r}: {path} {fault}; one whole number of tokens per line is wanted.")
    lengths = np.array([int(line) for line in lines], dtype=np.int64)
    return Distribution(text, lambda rng: rng.choice(lengths, BLOCK), float(lengths.mean()))


_KINDS: dict[str, Callable[[str, list[float]], Distribution]] = {
    "constant": _constant,
    "uniform": _uniform,
    "normal": _normal,
    "lognormal": _lognormal,
}
_EXAMPLE = "lognormal:1024,800"
