"""What a machine can do at most.

Products by NumPy's BLAS, addressed like any side; those of a GPU by JAX.
"""

import time
from collections.abc import Callable

import numpy as np

from benchmarks.opponents import protocol

__all__ = ["build", "copy_gb_per_s", "gemm_gflops", "on_device"]


def gemm_gflops(size: int = 2048, times: int = 3) -> float:
    """Return the best rate of a product of two square matrices."""
    a = np.random.default_rng(0).random((size, size), dtype=np.float32)
    b, c = a.copy(), np.empty_like(a)
    return 2e-9 * size**3 / min(_seconds(lambda: np.matmul(a, b, out=c)) for _ in range(times))


def copy_gb_per_s(size_bytes: int = 2**28, times: int = 3) -> float:
    """Return the best rate of bytes read and written by a copy far larger than any cache."""
    a = np.zeros(size_bytes // 4, np.float32)
    b = np.ones_like(a)
    return 2e-9 * size_bytes / min(_seconds(lambda: np.copyto(b, a)) for _ in range(times))


def on_device(order: dict[str, int]) -> dict[str, float]:
    """Return the best rates of square products where JAX computes, and of bytes copied there.

    Products by precision.
    """
    import jax
    import jax.numpy as jnp

    size, times, found = order["size"], 5, {}
    product, moved = jax.jit(jnp.matmul), jax.jit(lambda a: a + 1)
    drawn = jax.random.normal(
        jax.random.key(0), (size, size)
    )  # zeros would draw less power, and run faster
    for precision in ("float32", "bfloat16"):
        a = drawn.astype(precision)
        jax.block_until_ready(product(a, a))
        best_s = min(
            _seconds(lambda a=a: jax.block_until_ready(product(a, a))) for _ in range(times)
        )
        found[f"{precision}_gflops"] = 2e-9 * size**3 / best_s
    large = jax.block_until_ready(jnp.tile(drawn, (8, 1)))
    jax.block_until_ready(moved(large))
    best_s = min(_seconds(lambda: jax.block_until_ready(moved(large))) for _ in range(times))
    return {**found, "copy_gb_per_s": 2e-9 * large.nbytes / best_s}


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def build() -> protocol.Learner:
    """Answer the order `peak`; there is nothing to learn."""

    def peak(order: dict) -> dict:
        del order
        return {"gemm_gflops": gemm_gflops(), "copy_gb_per_s": copy_gb_per_s()}

    def nothing(*given: object) -> np.ndarray:
        del given
        return np.zeros(0)

    return protocol.Learner(np.__version__, nothing, nothing, nothing, orders={"peak": peak})


if __name__ == "__main__":
    protocol.serve(build)
