from pathlib import Path

from connector_tax.workload.lengths import Distribution


def write_prompts(
    source: Path,
    into: Path,
    *,
    output_lengths: Distribution | None,
    seed: int,
    chars_per_token: float = 4.0,
    limit: int | None = None,
) -> int: ...
def write_trace(source: Path, into: Path, *, speed: float) -> int: ...
