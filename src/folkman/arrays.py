"""The arrays of this process, from one place: JAX's, or NumPy's under the same names.

A module that a device node may import takes `jax`, `jnp`, `lax`, `Array` and the types of
annotations from here and never from JAX itself. With JAX they are JAX's own objects: nothing is
wrapped. Without it they are those of `folkman.light`, and a method is the same text either way.
"""

from typing import TYPE_CHECKING, Any

from folkman.arithmetic import chosen

__all__ = ["Array", "ArrayLike", "Bool", "DTypeLike", "Float", "Int", "Num"]
__all__ += ["PRNGKeyArray", "Tracer", "jax", "jnp", "lax"]

if TYPE_CHECKING or chosen().name == "jax":
    import jax
    import jax.numpy as jnp
    from jax import Array, lax
    from jax.core import Tracer
    from jax.typing import ArrayLike, DTypeLike
    from jaxtyping import Bool, Float, Int, Num, PRNGKeyArray
else:
    from folkman.light import names as jnp
    from folkman.light import transforms as jax
    from folkman.light.array import Array
    from folkman.light.transforms import lax

    class _Shaped:
        """An array in an annotation: `Float[Array, "node d"]` is an `Array`."""

        def __class_getitem__(cls, of: Any) -> Any:
            return of[0]

    class Tracer:
        """What stands for a number in a compiled program: never met here."""

    Bool = Float = Int = Num = _Shaped
    PRNGKeyArray = Array
    ArrayLike = DTypeLike = Any
