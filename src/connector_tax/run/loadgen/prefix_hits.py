"""Compares a server's prefix-cache counters before and after a cell; nothing is read during the cell."""

from collections.abc import Mapping

HITS, QUERIES, EXTERNAL = "prefix_cache_hits", "prefix_cache_queries", "external_prefix_cache_hits"

COUNTED = (HITS, QUERIES, EXTERNAL)

Counters = Mapping[str, float]


def hits_between(before: Counters, after: Counters) -> dict[str, float | None] | None:
    """Return prompt tokens found in the cache, looked up, and served from a store in between.

    None if the counters are missing or went back because the server restarted. They
    include other clients' requests.
    """
    if (
        HITS not in before
        or HITS not in after
        or any(after.get(k, v) < v for k, v in before.items() if k in COUNTED)
    ):
        return None
    counter_by_field = {"hit_tokens": HITS, "queried_tokens": QUERIES, "store_hit_tokens": EXTERNAL}
    return {
        field: after[counter] - before[counter] if counter in before and counter in after else None
        for field, counter in counter_by_field.items()
    }


def said_of(hits: Mapping[str, float | None] | None) -> str | None:
    """Return a sentence on the hits; None if there were none or they are unknown."""
    if hits is None or not (hits["hit_tokens"] or hits["store_hit_tokens"]):
        return None
    hit_tokens, queried_tokens, store_tokens = (
        hits[name] or 0.0 for name in ("hit_tokens", "queried_tokens", "store_hit_tokens")
    )
    share = f" ({hit_tokens / queried_tokens:.0%})" if queried_tokens else ""
    store = f", and {store_tokens:.0f} came out of a store" if store_tokens else ""
    return f"prefix cache: {hit_tokens:.0f} of {queried_tokens:.0f} prompt tokens were in it{share}{store}"
