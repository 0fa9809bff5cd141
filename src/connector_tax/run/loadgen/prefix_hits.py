"""Whether a server had prompts of a cell in its prefix cache, by its own counters; asked before and after,
never during."""

from collections.abc import Mapping

HITS, QUERIES, EXTERNAL = "prefix_cache_hits", "prefix_cache_queries", "external_prefix_cache_hits"

COUNTED = (HITS, QUERIES, EXTERNAL)

Counters = Mapping[str, float]


def hits_between(before: Counters, after: Counters) -> dict[str, float | None] | None:
    """Tokens of prompts in the meantime: found in the cache, looked up there, and served from a store; None
    where untold.

    They are all requests of the server, also those of others. Counters that went back are those of a server
    that began anew.
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
    """For people; None where there was no hit, or nobody tells."""
    if hits is None or not (hits["hit_tokens"] or hits["store_hit_tokens"]):
        return None
    found, asked, stored = (
        hits[name] or 0.0 for name in ("hit_tokens", "queried_tokens", "store_hit_tokens")
    )
    share = f" ({found / asked:.0%})" if asked else ""
    store = f", and {stored:.0f} came out of a store" if stored else ""
    return f"prefix cache: {found:.0f} of {asked:.0f} prompt tokens were in it{share}{store}"
