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
    names = {"hit_tokens": HITS, "queried_tokens": QUERIES, "store_hit_tokens": EXTERNAL}
    return {
        own: after[name] - before[name] if name in before and name in after else None
        for own, name in names.items()
    }


def said_of(hits: Mapping[str, float | None] | None) -> str | None:
    """Return a sentence on the hits; None if there were none or they are unknown."""
    if hits is None or not (hits["hit_tokens"] or hits["store_hit_tokens"]):
        return None
    found, asked, stored = (
        hits[name] or 0.0 for name in ("hit_tokens", "queried_tokens", "store_hit_tokens")
    )
    share = f" ({found / asked:.0%})" if asked else ""
    store = f", and {stored:.0f} came out of a store" if stored else ""
    return f"prefix cache: {found:.0f} of {asked:.0f} prompt tokens were in it{share}{store}"
