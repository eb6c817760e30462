"""The server's step: what it makes of the mean of the nodes' models.

    D = sum_i alpha_i w_i - w                                                  [1, Algorithm 2]
    sgd        w <- w + eta_s D
    momentum   m <- 0.9 m + D,                  w <- w + eta_s m
    adam       m <- 0.9 m + 0.1 D,              v <- 0.99 v + 0.01 D^2
    yogi       m <- 0.9 m + 0.1 D,              v <- v - 0.01 D^2 sign(v - D^2)
    adagrad    m <- 0.9 m + 0.1 D,              v <- v + D^2
               w <- w + eta_s m / (sqrt(v) + 1e-3),   v(0) = 1e-6, for these three

0.9, 0.99 and 1e-3 are the defaults of beta_1, beta_2 and tau; v(0) is tau^2.

[1] S. Reddi, Z. Charles, M. Zaheer, Z. Garrett, K. Rush, J. Konecny, S. Kumar, H. B. McMahan.
    Adaptive Federated Optimization. ICLR 2021. arXiv:2003.00295
"""

from typing import Literal, NamedTuple, TypeAlias, get_args

from folkman.arrays import Array, jnp
from folkman.checks import require, within

__all__ = ["FIRST", "SECOND", "TAU", "ServerRule", "ServerStep"]

ServerRule: TypeAlias = Literal["sgd", "momentum", "adam", "yogi", "adagrad"]

FIRST, SECOND, TAU = 0.9, 0.99, 1e-3
"""beta_1, beta_2 and tau of [1]."""


class ServerStep(NamedTuple):
    """Which rule, the step eta_s, and the rule's constants."""

    rule: ServerRule
    step: float
    beta_1: float = FIRST
    beta_2: float = SECOND
    tau: float = TAU

    def check(self) -> None:
        """Refuse what cannot be."""
        require(
            self.rule in get_args(ServerRule),
            f"server must be 'sgd', 'momentum', 'adam', 'yogi' or 'adagrad', got {self.rule!r}",
        )
        require(
            within(self.step, above=0),
            f"server_step must be above 0, got {self.step}; 1 takes the mean as it is",
        )
        require(
            0 <= self.beta_1 < 1 and 0 <= self.beta_2 < 1 and self.tau > 0,
            "beta_1 and beta_2 must be in [0, 1) and tau above 0, got "
            f"{self.beta_1}, {self.beta_2} and {self.tau}",
        )

    @property
    def plain(self) -> bool:
        """Tell whether the new model is the mean itself."""
        return self.rule == "sgd" and self.step == 1

    def first(self, params: Array) -> Array:
        """Return m and v before the first round, as many as the rule has: (moment, d)."""
        zero = jnp.zeros_like(params)
        moments = {"sgd": (), "momentum": (zero,)}.get(self.rule, (zero, zero + self.tau**2))
        return jnp.stack(moments) if moments else jnp.zeros((0, len(params)), params.dtype)

    def take(self, params: Array, mean: Array, moments: Array) -> tuple[Array, Array]:
        """Return the new model and the moments."""
        if self.plain:
            return mean, moments
        change = mean - params
        if self.rule == "sgd":
            return params + self.step * change, moments
        if self.rule == "momentum":
            m = self.beta_1 * moments[0] + change
            return params + self.step * m, m[None]
        m = self.beta_1 * moments[0] + (1 - self.beta_1) * change
        v = self._second(moments[1], change**2)
        return params + self.step * m / (jnp.sqrt(v) + self.tau), jnp.stack([m, v])

    def _second(self, v: Array, square: Array) -> Array:
        """Return the next v."""
        if self.rule == "adagrad":
            return v + square
        if self.rule == "adam":
            return self.beta_2 * v + (1 - self.beta_2) * square
        return v - (1 - self.beta_2) * square * jnp.sign(v - square)
