"""Named random streams.

Each is derived by hashing a path such as ``(campaign seed, "prompts", "a", "r4_4096x256")``, so adding a
consumer never changes what another one draws.
"""

import hashlib

import numpy as np


def derive_seed(root: int, *path: str | int) -> int:
    """Return a 63-bit seed for the stream ``path`` under ``root``."""
    text = "\x1f".join([str(root), *(str(part) for part in path)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def stream(root: int, *path: str | int) -> np.random.Generator:
    """Return an independent generator for the stream ``path`` under ``root``."""
    return np.random.default_rng(derive_seed(root, *path))
