"""What packed messages of a method cost, and which packings its messages can take."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from folkman.checks import require
from folkman.packing.packing import CASTS, NONE, Packing, bits_of, blocks_of, message_bits

__all__ = ["Forms", "forms_of", "settled"]


Forms: TypeAlias = Callable[[int, int], tuple[int, ...]]
"""(d, bits of a parameter) -> the bits of each form of a message, as a method declares them."""


def settled(
    packing: Packing,
    forms: Forms | None,
    entries: int,
    dim: int,
    name: str,
    *,
    sums: bool = False,
) -> Packing:
    """Return the packing of a method's messages, or refuse one that they cannot take.

    `sums`: what rounding leaves out of a message is lost for ever, as from a running sum; messages
    then travel as computed.
    """
    if sums and not packing.exact:
        require(
            packing.name in CASTS,
            f"{name} sends sums of all that it ever sent, or of what it corrects, from which "
            f"'{packing.name}' would lose mass; use the compression 'none', or another form",
        )
        packing = NONE
    if forms is not None and not packing.exact:
        fixed, slopes = _parts(forms, dim)
        own = [not slope and base > 0 for base, slope in zip(fixed, slopes, strict=True)]
        if packing.name in CASTS:
            packing = NONE if all(own) else packing
        else:
            require(
                not any(own) and all(slope % dim == 0 for slope in slopes),
                f"{name} packs its messages by itself, and '{packing.name}' cannot be put on top; "
                "use the compression 'none', 'float16' or 'bfloat16', or another method",
            )
        _check_blocks(packing, fixed, slopes, entries, dim, name)
    if packing.remembers:
        number = 1 if forms is None else len(forms(dim, 1))
        require(
            blocks_of(entries, dim) == 1 and number == 1,
            f"error feedback needs messages of one model, those of {name} have "
            f"{blocks_of(entries, dim)} in {number} forms; leave feedback out",
        )
    return packing


def _check_blocks(
    packing: Packing, fixed: tuple[int, ...], slopes: list[int], entries: int, dim: int, name: str
) -> None:
    """Refuse messages whose numbers behind the model are as many as a model, and so look like one.

    A block is d entries, on the wire as well. Such numbers are declared at 32 bits each.
    """
    for base, slope in zip(fixed, slopes, strict=True):
        behind = entries - slope
        require(
            packing.exact or base != 32 * behind or blocks_of(entries, dim) * dim <= slope,
            f"messages of {name} have {behind} numbers behind the model, and with {dim} parameters "
            f"'{packing.name}' would take them for a model and round them; use the compression "
            "'none', or a larger model",
        )


def _parts(forms: Forms, dim: int) -> tuple[tuple[int, ...], list[int]]:
    """Return of each form the bits that cost the same at any width, and how many entries do not."""
    fixed = forms(dim, 0)
    return fixed, [one - base for one, base in zip(forms(dim, 1), fixed, strict=True)]


def forms_of(
    packing: Packing, forms: Forms | None, entries: int, dim: int, dtype: np.dtype
) -> tuple[int, ...]:
    """Return the bits of each form of a message of so many entries, computed in `dtype`."""
    width = 8 * np.dtype(dtype).itemsize
    if forms is None:
        return (message_bits(packing, entries, dim, width),)
    if packing.exact or packing.name in CASTS:
        each = packing.bits or width if packing.exact else CASTS[packing.name][0]
        return forms(dim, each)
    fixed, slopes = _parts(forms, dim)
    block = bits_of(packing, dim)
    return tuple(base + slope // dim * block for base, slope in zip(fixed, slopes, strict=True))
