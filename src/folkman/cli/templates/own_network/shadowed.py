"""A radio of one's own: the built-in cell, with log-normal shadowing on top of its fading."""

from dataclasses import dataclass
from typing import Any

import jax

from folkman.radio.network import RadioNetwork
from folkman.units import db_to_linear


@dataclass(frozen=True)
class Shadowed(RadioNetwork):
    """Rayleigh fading and log-normal shadowing, drawn anew for every block."""

    shadow_db: float = 8.0

    def sinr(self, air: Any, key: jax.Array) -> jax.Array:
        """Return the SINR of one block between all pairs, [receiver, sender].

        Schedule, bandwidth, durations and ages all follow from it.
        """
        clear = super().sinr(air, key)
        shadow = self.shadow_db * jax.random.normal(jax.random.fold_in(key, 1), clear.shape)
        return clear * db_to_linear(shadow)
