"""The embedded engine's prefix cache knows whole blocks that began the same way."""

from connector_tax.run.emulator.server import PrefixCache

A = list(range(100))


def test_only_whole_blocks_of_the_same_beginning_are_found() -> None:
    cache = PrefixCache(16, 100)
    assert cache.hits(A) == 0
    cache.insert(A)
    assert cache.hits(A) == 96
    assert cache.hits([*A[:40], *A]) == 32
    assert cache.hits(A[1:]) == 0, "the same tokens elsewhere are other blocks"


def test_the_last_token_is_always_computed() -> None:
    cache = PrefixCache(16, 100)
    cache.insert(A[:32])
    assert cache.hits(A[:32]) == 16
    assert cache.hits(A[:33]) == 32


def test_the_least_recently_used_blocks_go_first() -> None:
    cache = PrefixCache(16, 4)
    cache.insert(A[:32])
    cache.insert([-t for t in A[:32]])
    cache.insert(A[:32])
    cache.insert([*A[50:82]])
    assert cache.hits(A[:33]) == 32
    assert cache.hits([-t for t in A[:33]]) == 0
