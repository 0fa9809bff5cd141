"""Which prompts begin as an earlier one did: whole blocks, chained, least recently used ones forgotten."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence


class PrefixCache:
    """Knows blocks of tokens by a hash over everything up to their end, as vLLM's prefix cache does."""

    def __init__(self, block_size: int, blocks: int) -> None:
        self._block_size = block_size
        self._blocks = blocks
        self._known: OrderedDict[int, None] = OrderedDict()

    def hits(self, tokens: Sequence[int]) -> int:
        """Leading tokens whose blocks are known; the last token always has to be computed."""
        found = 0
        for key in self._keys(tokens[: len(tokens) - 1]):
            if key not in self._known:
                break
            found += self._block_size
        return found

    def insert(self, tokens: Sequence[int]) -> None:
        """Remember every whole block of ``tokens``."""
        for key in self._keys(tokens):
            self._known[key] = None
            self._known.move_to_end(key)
        while len(self._known) > self._blocks:
            self._known.popitem(last=False)

    def _keys(self, tokens: Sequence[int]) -> Iterator[int]:
        key = 0
        for end in range(self._block_size, len(tokens) + 1, self._block_size):
            key = hash((key, *tokens[end - self._block_size : end]))
            yield key
