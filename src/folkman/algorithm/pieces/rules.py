"""How received models are put together: the mean, or a rule that a few false ones cannot move far.

    mean           sum_j weight_j x_j
    trimmed_mean   per coordinate, the mean without the `trim` largest and smallest values     [1]
    median         per coordinate                                                              [1]
    krum           the model nearest to its n - trim - 2 nearest, by squared distance          [2]

The last three use which models count (weight > 0) and not how much: a false node would lie about
its weight. `trim` is the number of false models to withstand, lowered to what the models at hand
allow. These rules write out all models that a node holds, so between peers they cost
node x node x d; the mean does not.

[1] D. Yin, Y. Chen, K. Ramchandran, P. Bartlett. Byzantine-Robust Distributed Learning: Towards
    Optimal Statistical Rates. ICML 2018. arXiv:1803.01498
[2] P. Blanchard, E. M. El Mhamdi, R. Guerraoui, J. Stainer. Machine Learning with Adversaries:
    Byzantine Tolerant Gradient Descent. NeurIPS 2017. arXiv:1703.02757
"""

from typing import Literal, NamedTuple, get_args

from folkman.algorithm.base import Inbox
from folkman.arrays import Array, ArrayLike, jnp
from folkman.checks import require

__all__ = ["RULES", "Rule", "combine"]


class Rule(NamedTuple):
    """How models are put together; an option of a method, as `rule` and `trim`."""

    # how models are put together: their mean, or one that withstands liars
    rule: Literal["mean", "trimmed_mean", "median", "krum"] = "mean"
    trim: int = 1  # false models to withstand

    def check(self) -> None:
        """Refuse a rule that does not exist."""
        require(self.rule in RULES, f"rule must be one of {', '.join(RULES)}, got {self.rule!r}")
        require(
            self.trim >= 0,
            f"trim counts false models to withstand, at least 0, got {self.trim}",
        )


RULES: tuple[str, ...] = get_args(Rule.__annotations__["rule"])


def combine(
    how: Rule,  # the rule
    inbox: Inbox,
    weights: Array | None = None,
    own: Array | None = None,  # the node's own model; None: the held ones alone
    own_weight: ArrayLike = 0.0,  # weight of the own model
) -> Array:
    """Put the held models, and the node's `own` if there is one, together.

    `weights` (nbr,), those of the inbox if None, and `own_weight` sum to 1; a neighbour of weight 0
    does not count. Returns as many entries as a message has.
    """
    rule, trim = how
    if rule == "mean":
        mixed = inbox.mix(weights)
        return mixed if own is None else jnp.asarray(own_weight) * own + mixed
    models = inbox.store[inbox.row]
    counts = (inbox.weight if weights is None else weights) > 0
    if own is not None:
        models = jnp.concatenate([own[None], models])
        counts = jnp.concatenate([(jnp.asarray(own_weight) > 0)[None], counts])
    number = jnp.sum(counts, dtype=jnp.int32)
    if rule == "krum":
        return models[_krum(models, counts, number, trim)]
    cut = jnp.minimum(trim, (number - 1) // 2) if rule == "trimmed_mean" else (number - 1) // 2
    # those that do not count come last
    ordered = jnp.sort(jnp.where(counts[:, None], models, jnp.inf), axis=0)
    place = jnp.arange(len(models))
    inside = (place >= cut) & (place < number - cut)
    return jnp.sum(jnp.where(inside[:, None], ordered, 0.0), axis=0) / (number - 2 * cut)


def _krum(models: Array, counts: Array, number: Array, trim: int) -> Array:
    """Return which model has the closest neighbourhood [2, Section 4]."""
    product = jnp.dot(models, models.T, precision="highest")
    norm = jnp.diagonal(product)
    apart = jnp.maximum(norm[:, None] + norm[None] - 2.0 * product, 0.0)
    apart = jnp.where(counts[None] & ~jnp.eye(len(models), dtype=bool), apart, jnp.inf)
    near = jnp.clip(number - trim - 2, 1, jnp.maximum(number - 1, 1))
    ordered = jnp.sort(apart, axis=1)
    score = jnp.sum(jnp.where(jnp.arange(len(models))[None] < near, ordered, 0.0), axis=1)
    finite = jnp.minimum(score, jnp.finfo(score.dtype).max)  # alone it is inf, and itself
    return jnp.argmin(jnp.where(counts, finite, jnp.inf))
