"""How a vector is written for the air: what is priced is what is sent.

    float32, float16, bfloat16   every entry rounded to that width, to the nearest or at random
    int8                         every entry a multiple of max|x| / 127
    qsgd                         every entry a level, up or down at random: unbiased [1]
    fixed                        every entry a multiple of one step, the same for all messages
    sign                         every entry its sign, times the mean of |x| [2]
    top_k                        the largest entries, with their places [3]
    rand_k                       entries drawn at random, scaled to be unbiased
    none                         the numbers as they are

`folkman.packing.packing` has the value and its functions, `memory` error feedback, `wire` the
bytes. Simulator, reference and devices use the same functions.

[1] Alistarh, Grubic, Li, Tomioka, Vojnovic. QSGD: Communication-Efficient SGD via Gradient
    Quantization and Encoding. NeurIPS 2017. arXiv:1610.02132
[2] Karimireddy, Rebjock, Stich, Jaggi. Error Feedback Fixes SignSGD and other Gradient Compression
    Schemes. ICML 2019. arXiv:1901.09847
[3] Stich, Cordonnier, Jaggi. Sparsified SGD with Memory. NeurIPS 2018. arXiv:1809.07599
"""

from folkman.builders import Builders
from folkman.packing.packing import (
    NONE,
    Packing,
    bfloat16,
    fixed,
    float16,
    float32,
    implied,
    int8,
    none,
    qsgd,
    rand_k,
    sign,
    top_k,
)

__all__ = [
    "NONE",
    "PACKINGS",
    "Packing",
    "bfloat16",
    "fixed",
    "float16",
    "float32",
    "implied",
    "int8",
    "none",
    "qsgd",
    "rand_k",
    "sign",
    "top_k",
]

PACKINGS: Builders[Packing | None] = Builders(
    {
        name: f"folkman.packing.packing:{name}"
        for name in (
            "by_bits",
            "none",
            "float32",
            "float16",
            "bfloat16",
            "int8",
            "fixed",
            "qsgd",
            "sign",
            "top_k",
            "rand_k",
        )
    }
)
"""Builders by name."""
