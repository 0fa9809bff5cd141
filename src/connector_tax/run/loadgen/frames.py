"""How a read begins that is one HTTP chunk with one event in it, by the read's length.

The size in the chunk's head follows from the length of the whole, so such a read is known without parsing the head.
"""

# Longest read that may be recognised by its frame; an event with more in it is worth parsing.
MAX_FRAME = 4096
# Begins no chunk.
NO_FRAME = b"\n"


def _frames() -> dict[int, bytes]:
    """Length of a read -> what it begins with, if it is one chunk that holds one event."""
    heads = (b"%x\r\n" % n for n in range(1, MAX_FRAME))
    return {len(head) + n + 2: head + b"data: {" for n, head in enumerate(heads, start=1)}


FRAMES = _frames()
# Asked for every token: a method of an imported dictionary would be bound anew each time (CPython 3.11).
frame_of = FRAMES.get
