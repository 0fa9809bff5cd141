"""The written map from the paths of ``data/`` to those that the code writes now.

``data/`` keeps the names under which a number was first held. When a key of ``aggregate.json`` or ``fleet.json`` is renamed, a line comes in
here and the numbers stay as they are. In a pattern ``*`` stands for one key or one index and is carried over in order; ``**`` at its
beginning for any number of keys. A pattern covers all that is below it. All renames are made in order, each of what the one before left.
"""

# Path before -> path now.
RENAMED: tuple[tuple[str, str], ...] = (
    ("**.kind", "**.n_blocks"),
    ("hypotheses[*].label", "hypotheses[*].conclusions[0]"),
    ("hypotheses[*].at_equal_host_speed.label", "hypotheses[*].at_equal_host_speed.conclusions[0]"),
)

# Path now -> value before -> value now, as JSON writes both: {'"neither"': "null"}.
CONCLUSIONS = {
    '"kept"': '"prior_kept"',
    '"revised"': '"prior_revised"',
    '"open"': '"prior_open"',
    '"coupling; prior 45 % revised"': '"coupling"',
    '"coupling; prior 45 % revised to 2.0 % [-2.5 %, 6.8 %]"': '"coupling"',
    '"larger than in the replay"': '"larger_than_replay"',
    '"implementation-cost-dominated"': '"implementation_dominates"',
    '"no tax to split is found"': '"no_tax_to_split"',
    '"not monotonic"': '"not_monotonic"',
}
VALUES: dict[str, dict[str, str]] = {
    "hypotheses[*].conclusions[0]": CONCLUSIONS,
    "hypotheses[*].at_equal_host_speed.conclusions[0]": CONCLUSIONS,
}

# Paths that are held and no longer written, each with its reason.
GONE: dict[str, str] = {
    "repeats[*].taxes[*].kind": "n says over how many blocks",
    "burns.rows[*].found.kind": "n says over how many blocks",
    "decomposition[*].kind": "its total and its parts say it",
    "main_taxes[*].blocks": "n_blocks says it",
    "attribution[*].difference_us.kind": "always of one launch",
    "attribution[*].parts[*].kind": "always of one launch",
    "attribution[*].in_hooks_share.kind": "always of one launch",
    "taxes[*].available": "point is null where it is not",
    "main_taxes[*].available": "point is null where it is not",
    "amplification[*].available": "point is null where it is not",
    "taxes[*].headline": "those of phase a",
}

# Paths that are written and not held, each with its reason. Numbers that stay belong into data/ when it is next made.
NEW: dict[str, str] = {
    "**.subject": "whose number is missing",
    "**.code": "was a sentence",
    "problems[*]": "were in a sentence",
    "**.reason.numbers": "were in a sentence",
    "cells[*].reasons": "were in a sentence",
    "criteria[*].evidence": "were in a sentence",
    "hypotheses[*].conclusions[1]": "was behind the first in one text",
    "hypotheses[*].at_equal_host_speed.conclusions[1]": "was behind the first in one text",
    "hypotheses[*].n_blocks": "words, where it is over blocks",
    "hypotheses[*].numbers.queueing": "was in a sentence",
}

# Column of aggregate.csv or fleet.csv before -> column now.
COLUMNS: dict[str, str] = {
    f"tax_{metric}_kind": f"tax_{metric}_n_blocks"
    for metric in ("ttft_p90", "tpot_p90", "step_p50_us", "callback_p50_us", "unexplained_us")
}

# Columns whose values are words for a person, or follow from others: they may turn into codes and numbers.
WORDS_IN_COLUMNS = ("reasons", "tax_*_kind")

# Keys whose texts are codes, in any section or, with its name before the point, in one: held, as they decide something. All other texts
# are words, and not held.
CODES = frozenset(
    {
        *("arrival", "averaged_over", "cell_id", "config", "engine_kind", "fired", "flags", "hook"),
        *("code", "conclusions", "id", "metric", "non_monotonic", "outcome", "overloaded", "part", "participating"),
        *("phase", "quantity", "queue", "reference", "router", "side", "source", "status", "subject", "unit"),
        *("verdict",),
    }
)  # fmt: skip

# Keys that hold words where they hold anything: null there is no number that is missing.
WORDS = frozenset(
    {
        *("copies_kv", "evidence", "holds", "install", "label", "note", "reason", "sentence"),
        *("step_timing_reason", "title", "ttft_is_no_tax", "what", "where"),
    }
)  # fmt: skip
