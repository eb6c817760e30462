"""Write the same arrays as the same bytes: safetensors orders a file's metadata at random."""

import json

__all__ = ["with_notes_in_order"]

LENGTH_BYTES = 8
"""Of the header's length, which a file begins with."""


def with_notes_in_order(data: bytes) -> bytes:
    """Return a safetensors file whose metadata is in the order of its names, as long as before."""
    end = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "little")
    head = json.loads(data[LENGTH_BYTES:end])
    head["__metadata__"] = dict(sorted(head["__metadata__"].items()))
    text = json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode()
    return data[:LENGTH_BYTES] + text.ljust(end - LENGTH_BYTES) + data[end:]
