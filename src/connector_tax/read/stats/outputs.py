"""Compares the accuracy pass of every launch with plain's."""

import msgspec

from connector_tax.base.documents.aggregate import (
    FirstDifference,
    Outputs,
    OutputsVerdict,
)
from connector_tax.base.documents.cell import Output
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.read.ingest import CampaignData, RunData

Answers = list[Output]
PLAINS = ("plain", PLAIN_AGAIN)


def compare_outputs(data: CampaignData) -> list[Outputs]:
    """Return a row per launch with an accuracy pass, compared with plain's first launch.

    ``verdict``: ``reference`` (that launch itself), ``same``, ``differs``, ``not repeatable`` (it differs,
    but only where launches of plain differ among themselves), ``failed`` (it or plain's first launch left a
    prompt unanswered).
    """
    runs = [run for run in data.runs if run.outputs is not None]
    plain = [run for run in runs if run.folder.connector_id in PLAINS]
    if not plain:
        return []
    reference, *plain_repeats = (run.outputs or [] for run in plain)
    unstable = {k for other in plain_repeats for k in _different(reference, other)}
    rows = {run.folder.path: _row(run, reference, unstable) for run in runs}
    first = plain[0].folder.path
    rows[first] = msgspec.structs.replace(rows[first], verdict="reference")
    return [*rows.values()]


def other_computations(rows: list[Outputs]) -> dict[str, str]:
    """Return configuration -> why its latencies are no tax: different answers, so another computation."""
    return {
        row.config: "answers_differ" for row in rows if row.verdict == "differs" and row.config not in PLAINS
    }


def _row(run: RunData, reference: Answers, unstable: set[int]) -> Outputs:
    answers = run.outputs or []
    different = _different(reference, answers)
    # Answers missing in plain's first launch cannot differ.
    failed = sum("error" in a or "error" in b for a, b in zip(reference, answers, strict=False))
    first = min(different, default=None)
    verdict: OutputsVerdict = "same"
    if failed or len(answers) != len(reference):
        verdict = "failed"
    elif different:
        verdict = "not repeatable" if different <= unstable else "differs"
    return Outputs(
        config=run.folder.connector_id,
        phase=run.folder.phase,
        n_prompts=len(answers),
        n_same=min(len(reference), len(answers)) - len(different),
        n_failed=failed,
        first_difference=None
        if first is None
        else FirstDifference(prompt=first, token=_position(reference[first], answers[first])),
        verdict=verdict,
    )


def _different(reference: Answers, other: Answers) -> set[int]:
    """Return the prompts whose answers are not the same, or failed in either."""
    return {k for k, (a, b) in enumerate(zip(reference, other, strict=False)) if a != b or "error" in a}


def _position(reference: Output, other: Output) -> int | None:
    """Return the index of the first token that differs; None without token ids."""
    expected, found = reference.get("token_ids"), other.get("token_ids")
    if expected is None or found is None:
        return None
    pairs = list(zip(expected, found, strict=False))
    return next((k for k, (a, b) in enumerate(pairs) if a != b), len(pairs))
