"""What a load of another tool came to, and the documents that it is read from."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from connector_tax.base.documents.load import Level
from connector_tax.base.errors import ArtifactError, ConfigError
from connector_tax.base.opening import MOST_LINES_BYTES, read_whole

PERCENTILES = ("p50", "p90", "p99")
Latencies = dict[str, dict[str, float | None]]
# A number of theirs; beyond the bound, 30 years in milliseconds, it is none.
Number = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Count = Annotated[int, msgspec.Meta(ge=0)]
# Of a clock that may have begun in 1970, in seconds or in nanoseconds.
Stamp = Annotated[float, msgspec.Meta(ge=0, le=1e20)]
T = TypeVar("T")
_Members = dict[str, msgspec.Raw]
_MAYBE_NUMBER = Number | None


class SingleRequests(msgspec.Struct, frozen=True):
    """Latencies of the completed requests, one by one in order of their start; those that have none of a kind are left out of it.

    Attributes:
        itl_ms: the gaps of each request.
    """

    ttft_ms: tuple[float, ...] = ()
    tpot_ms: tuple[float, ...] = ()
    e2e_ms: tuple[float, ...] = ()
    itl_ms: tuple[tuple[float, ...], ...] = ()


DISAGREE = "Values of single requests do not agree with the numbers of the summary and are left out."


def agree(latencies: Latencies, requests: SingleRequests, *, sample: bool = False) -> bool:
    """Whether every percentile lies where the values of the single requests have it, to one part in a hundred and one request: those of
    another run or of another unit lie elsewhere.

    Args:
        sample: they are some of the requests only, of which the median need lie among them and nothing else is known.
    """
    for name in ("ttft_ms", "tpot_ms", "e2e_ms"):
        values = sorted(getattr(requests, name))
        last = len(values) - 1
        for q, point in latencies.get(name, {}).items():
            if last < 0 or point is None or (sample and q != "p50"):
                continue
            at = float(q.removeprefix("p")) / 100 * last
            low = 0 if sample else max(math.floor(at) - 1, 0)
            high = last if sample else min(math.ceil(at) + 1, last)
            if not 0.99 * values[low] <= point <= 1.01 * values[high]:
                return False
    return True


class ForeignResult(msgspec.Struct, frozen=True):
    """One load, as another tool measured it.

    Attributes:
        version: of the tool; None where its file does not say.
        load: what was asked for, in words: ``20 req/s``.
        latencies_ms: TTFT, TPOT, ITL and E2E by percentile, of completed requests; None where the file does not have it.
        requests: None where the file has nothing of single requests.
        levels: the latencies with intervals that the file has itself; None where it has none.
        notes: what makes its numbers differ from others' of the same name.
    """

    tool: str
    version: str | None
    load: str | None
    completed: int
    failed: int | None
    duration_s: float | None
    requests_per_s: float | None
    output_tokens_per_s: float | None
    latencies_ms: Latencies
    requests: SingleRequests | None
    notes: tuple[str, ...]
    levels: dict[str, dict[str, Level]] | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """One JSON object.

    Attributes:
        members: not looked at yet.
        place: for messages: the file, and the line where it has several.
    """

    place: str
    content: bytes
    members: dict[str, msgspec.Raw]

    def read_as(self, form: type[T]) -> T:
        """
        Raises:
            ConfigError: it is of another form; says where.
        """
        found: T = _decoded(self.place, self.content, form)
        return found

    def number(self, name: str) -> float | None:
        """None where there is none of that name.

        Raises:
            ConfigError: it is no number of 0 or more.
        """
        if name not in self.members:
            return None
        number: float | None = _decoded(f"{self.place}: {name}", self.members[name], _MAYBE_NUMBER)
        return number


def _decoded(place: str, content: bytes | msgspec.Raw, form: Any) -> Any:
    try:
        return msgspec.json.decode(content, type=form)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{place}: not of the form that its tool writes: {error}.") from error


def read_documents(path: Path) -> list[Document]:
    """The JSON object in a file, or those in its lines; at least one.

    Raises:
        ConfigError: no such file, no JSON, or nothing in it.
    """
    try:
        content = read_whole(path.resolve(), MOST_LINES_BYTES)
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file.") from error
    except ArtifactError as error:
        raise ConfigError(str(error)) from error
    # RuntimeError: links in a circle; ValueError: a name that holds a null byte.
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}).") from error
    content = content.removeprefix(b"\xef\xbb\xbf")  # an editor's byte order mark
    if not content.strip():
        raise ConfigError(f"{path}: holds nothing.")
    if any(word in content for word in _NO_JSON):
        content = (
            b"\n".join(map(_as_json, content.split(b"\n")))
            if b"\n{" in content.strip()
            else _as_json(content)
        )
    try:
        return [Document(str(path), content, msgspec.json.decode(content, type=_Members))]
    except (ValueError, RecursionError) as error:
        whole = error
    found: list[Document] = []
    for number, line in enumerate(content.split(b"\n"), start=1):
        if line.strip():
            place = f"{path}: line {number}"
            try:
                found.append(Document(place, line, msgspec.json.decode(line, type=_Members)))
            except (ValueError, RecursionError) as error:
                # A document of many lines is meant where not even the first is one.
                at, why = (place, error) if found else (str(path), whole)
                raise ConfigError(f"{at}: no JSON object ({why}).") from error
    return found


# Python's json module writes them, and no other reads them: ``vllm bench serve --burstiness inf`` has the first one.
_NO_JSON = (b"Infinity", b"NaN")


def _as_json(content: bytes) -> bytes:
    """With null for what is no number; unchanged where it is no JSON all the same, which is said then."""
    try:
        return msgspec.json.encode(json.loads(content, parse_constant=lambda word: None))
    except (ValueError, RecursionError, TypeError):
        return content


def milliseconds(seconds: Iterable[float]) -> tuple[float, ...]:
    return tuple(1000.0 * s for s in seconds)


def known(values: Iterable[float | None]) -> tuple[float, ...]:
    return tuple(v for v in values if v is not None)
