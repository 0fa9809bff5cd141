"""Step records of a cell as a Parquet table: decoded once, read from there while nothing has changed.

The JSONL is the truth. A table names in its metadata what it was made of and by what; one that names anything else,
or cannot be read, is made again. Every column is float64 but ``kind``, which is int8.
"""

import hashlib
import io
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import connector_tax.base.steptime.columns
import connector_tax.base.steptime.heard
import connector_tax.read.ingest.steps
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import open_regular, parse_json, write_bytes
from connector_tax.base.records.cell import CellWindow
from connector_tax.base.steptime.heard import Unheard
from connector_tax.read.ingest.steps import Hooks, StepTable, read_steps

SCHEMA = 5
KEY = b"connector_tax"
COLUMNS = (
    "began_s",
    *("step_duration_us", "schedule_us", "update_us", "round_trip_us", "build_meta_us", "get_finished_us"),
    *("start_load_kv_us", "connector_total_us", "tokens", "kind"),
)
HOOK_COLUMNS = {"us": attrgetter("us"), "calls": attrgetter("calls"), "cpu_us": attrgetter("cpu_us")}
COUNTS = ("n_empty", "n_unjoined", "n_joined_by_order", "torn")


class Source(msgspec.Struct, frozen=True):
    """The records that a table was made of."""

    name: str
    bytes: int
    sha256: str


class MadeOf(msgspec.Struct, frozen=True):
    """What must be the same for a table to be used: the records, the part of them, and the code that joins them."""

    schema: int
    source: Source
    window_ns: tuple[int, int]
    connector: bool
    code_sha256: str


class Facts(msgspec.Struct, frozen=True):
    """What a table's metadata say of it."""

    made_of: MadeOf
    n: int
    hooks: tuple[str, ...]
    n_empty: int
    n_unjoined: int
    n_joined_by_order: int
    torn: bool
    unheard: tuple[Unheard, ...]
    members: dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True)
class StepRecords:
    """Step records of one cell, read when they are asked for.

    Attributes:
        source: the JSONL; ``sha256`` is of its content, which was checked.
        table: where its table lies, or would.
        n: steps of the window with a token.
        torn: the file's last line was cut off.
        connector: whether the launch had one.
        unheard: codes of why hook times are not known though it had; none where they are.
        not_kept: why no table could be written; None where there is one.
        members: median of what the hooks of each member of the connector took, microseconds; see ``StepTable.member_us``.
    """

    source: Path
    sha256: str
    window: CellWindow
    table: Path
    n: int
    torn: bool
    not_kept: str | None
    connector: bool = False
    unheard: tuple[Unheard, ...] = ()
    members: dict[str, dict[str, float]] = field(default_factory=dict)

    def load(self, *, hooks: bool = True) -> StepTable:
        """From the table, or from the JSONL where there is none.

        Args:
            hooks: whether the hooks' columns are wanted, which are most of a table; else there are none.
        """
        made_of = _made_of(self.source, self.sha256, self.window, self.connector)
        found = _read(self.table, made_of, hooks=hooks)
        if found is not None:
            return found
        if self.not_kept is not None:
            return read_steps(self.source, self.window, connector=self.connector)
        return _make(self.source, self.window, self.table, made_of)[0]


def open_steps(
    source: Path, sha256: str, window: CellWindow, table: Path, *, connector: bool = False
) -> StepRecords:
    """Step records of a cell, with a table made where there is no valid one.

    Args:
        connector: whether its launch had one.

    Raises:
        ArtifactError: a line of ``source`` is not a step record.
    """
    made_of = _made_of(source, sha256, window, connector)
    known = _facts(table, made_of)
    not_kept = None
    if known is None:
        steps, not_kept = _make(source, window, table, made_of)
        known = _facts_of(steps, made_of)
    whole = (known.n, known.torn, not_kept, connector, known.unheard, known.members)
    return StepRecords(source, sha256, window, table, *whole)


def _facts_of(steps: StepTable, made_of: MadeOf) -> Facts:
    members = {
        member: {kind: float(np.median(us)) for kind, us in kinds.items()}
        for member, kinds in steps.member_us.items()
    }
    counts = {k: getattr(steps, k) for k in COUNTS}
    hooks = tuple(steps.hooks.names)
    return Facts(made_of=made_of, n=steps.n, hooks=hooks, unheard=steps.unheard, members=members, **counts)


def _make(source: Path, window: CellWindow, table: Path, made_of: MadeOf) -> tuple[StepTable, str | None]:
    """The decoded records, and why they could not be kept."""
    steps = read_steps(source, window, connector=made_of.connector)
    try:
        write_bytes(table, _parquet(steps, made_of))
    except ArtifactError as error:
        # Results are also read where nothing can be written; the JSONL is enough.
        return steps, str(error)
    return steps, None


def _made_of(source: Path, sha256: str, window: CellWindow, connector: bool) -> MadeOf:
    return MadeOf(
        SCHEMA,
        Source(source.name, source.stat().st_size, sha256),
        (window.window_start_ns, window.t_stop_ns),
        connector,
        _code_sha256(),
    )


@cache
def _code_sha256() -> str:
    modules = (
        connector_tax.read.ingest.steps,
        connector_tax.base.steptime.columns,
        connector_tax.base.steptime.heard,
    )
    return hashlib.sha256(b"".join(Path(str(m.__file__)).read_bytes() for m in modules)).hexdigest()


def _parquet(steps: StepTable, made_of: MadeOf) -> bytes:
    names = steps.hooks.names
    columns = {name: getattr(steps, name) for name in COLUMNS}
    # By number: a connector that is made twice has each of its hooks twice.
    for k in range(len(names)):
        columns |= {f"{what}:{k}": of(steps.hooks)[:, k] for what, of in HOOK_COLUMNS.items()}
    table = pa.table(columns).replace_schema_metadata({KEY: msgspec.json.encode(_facts_of(steps, made_of))})
    out = io.BytesIO()
    # No dictionaries: hardly two steps take the same time, and building them takes ten times as long.
    pq.write_table(table, out, compression="zstd", use_dictionary=False, write_page_checksum=True)
    return out.getvalue()


def _facts(path: Path, made_of: MadeOf) -> Facts | None:
    """What the metadata say; None where there is no table, no whole one, or one of something else."""
    try:
        with open_regular(path) as file:
            metadata = pq.read_metadata(file)
        found = msgspec.convert(parse_json(metadata.metadata[KEY]), Facts)
    except (OSError, pa.ArrowException, ArtifactError, LookupError, TypeError, ValueError):
        return None
    if found.made_of != made_of or metadata.num_rows != found.n:
        return None
    columns = len(COLUMNS) + len(HOOK_COLUMNS) * len(found.hooks)
    return found if metadata.num_columns == columns else None


def _read(path: Path, made_of: MadeOf, *, hooks: bool) -> StepTable | None:
    """None as in ``_facts``, or where a page differs from its checksum."""
    facts = _facts(path, made_of)
    if facts is None:
        return None
    names = facts.hooks if hooks else ()
    wanted = [*COLUMNS, *(f"{what}:{k}" for what in HOOK_COLUMNS for k in range(len(names)))]
    try:
        # One thread: every process of the analysis reads a table of its own.
        with open_regular(path) as file:
            table = pq.ParquetFile(file, page_checksum_verification=True).read(wanted, use_threads=False)
        columns = {name: table[name].to_numpy() for name in wanted}
    except (OSError, pa.ArrowException, ArtifactError, LookupError):
        return None
    kinds = {name: np.int8 if name == "kind" else np.float64 for name in wanted}
    if any(c.dtype != kinds[name] or np.isinf(c).any() for name, c in columns.items()):
        return None
    shape = (facts.n, len(names))
    of_hooks = {what: np.empty(shape) for what in HOOK_COLUMNS}
    for what, values in of_hooks.items():
        for k in range(len(names)):
            values[:, k] = columns[f"{what}:{k}"]
    return StepTable(
        **{name: columns[name] for name in COLUMNS},
        hooks=Hooks(names, **of_hooks),
        **{name: getattr(facts, name) for name in (*COUNTS, "unheard")},
    )
