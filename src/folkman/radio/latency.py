"""How long learning and sending take: training latency, payload, transmission durations.

    T(D)     = T_0 + c max(D - D_th, 0)                                     [2, Assumption 1]
    Gamma_ji = q_i S / (T B_i log2(1 + SINR_ji))                            [1, eq. (27)]
    Gamma_T  = max_{i scheduled} max_{j in Y_i} Gamma_ji                    [1, eq. (26)]

Durations count slots of T seconds, T the time of one local gradient. Differs from [1]: what is sent
takes whole slots, max(1, ceil(.)), because the theory counts iterations (B3); the continuous value
is there too. A sparse payload pays for its indices (D9).

[1] Xie, Xia, Wu, Wang, Huang. Decentralized Federated Learning with Asynchronous Parameter Sharing
    for Large-scale IoT Networks. IEEE IoT Journal 2024. arXiv:2401.07122
[2] Ren, Yu, Ding. Accelerating DNN Training in Wireless Federated Edge Learning Systems. IEEE JSAC
    39(1), 2021. arXiv:1905.09712. Neither source gives usable constants: T_0 = 1 s, D_th = 128,
    c = 1 ms are ours.
"""

from typing import overload

from folkman.arrays import Array, ArrayLike, Bool, Float, Int, Num, jnp
from folkman.checks import require_positive

__all__ = [
    "NEVER_SLOTS",
    "aggregated_slots",
    "payload_bits",
    "training_latency_s",
    "transmission_slots",
    "whole_slots",
]

NEVER_SLOTS = (
    2**30
)  # whole slots of what never ends; half of int32, so that adding a slot number cannot wrap


def training_latency_s(
    samples: ArrayLike,  # samples of a gradient
    base_s: ArrayLike = 1.0,  # seconds of a gradient of few samples
    threshold: ArrayLike = 128,  # samples up to which it takes no longer
    per_sample_s: ArrayLike = 1e-3,  # seconds of each sample more
) -> Float[Array, "..."]:
    """Return T(D): constant up to `threshold` samples, a GPU's first batch, then linear [2]."""
    count = jnp.asarray(samples)
    if not jnp.issubdtype(count.dtype, jnp.floating):
        count = count.astype(jnp.float32)
    return jnp.maximum(count - threshold, 0.0) * per_sample_s + base_s


@overload
def payload_bits(
    num_parameters: int, bits_per_parameter: int = 16, kept_fraction: float = 1.0
) -> float: ...
@overload
def payload_bits(num_parameters: int, bits_per_parameter: int, kept_fraction: Array) -> Array: ...
def payload_bits(
    num_parameters: int,  # number of parameters of the model, d
    bits_per_parameter: int = 16,
    kept_fraction: float | Array = 1.0,  # q, the share of parameters that is sent
) -> float | Array:
    """Return q S, S = bits d, plus q d ceil(log2 d) index bits if anything is left out (D9).

    A number in, a number out, exact to 2^53 bits; an array of fractions gives an array.
    """
    require_positive("num_parameters", num_parameters, "give the length of the flat model vector")
    dense_bits = float(num_parameters * bits_per_parameter)
    index_bits = (
        num_parameters * (num_parameters - 1).bit_length()
    )  # bit_length(d - 1) = ceil(log2 d)
    if isinstance(kept_fraction, Array):
        return kept_fraction * jnp.where(kept_fraction < 1, dense_bits + index_bits, dense_bits)
    if not 0 <= kept_fraction <= 1:
        raise ValueError(
            f"expected kept_fraction in [0, 1], got {kept_fraction}; "
            "it is q, the share of parameters sent"
        )
    return dense_bits if kept_fraction == 1 else kept_fraction * (dense_bits + index_bits)


def transmission_slots(
    bits: ArrayLike,
    bandwidth_hz: Float[Array, "..."],
    se: Float[Array, "*shape"],  # spectral efficiency, in bit/s/Hz
    slot_s: ArrayLike,
) -> Float[Array, "*shape"]:
    """Return Gamma_ji of eq. (27), continuous.

    `se` is log2(1 + SINR), (rx, tx), or se_min, (tx,); a number for one broadcast.

    `bandwidth_hz` is B_i, (tx,); `bits` is q_i S, a number or (tx,). Without bandwidth nothing ever
    arrives: +inf, whatever the spectral efficiency, also for the +inf that `schedule.se_min` gives
    the unscheduled.
    """
    require_positive("slot_s", slot_s, "give the duration T of one local gradient in seconds")
    band_hz = jnp.broadcast_to(bandwidth_hz, se.shape)
    rate_bps = jnp.where(band_hz > 0, band_hz * jnp.where(band_hz > 0, se, 0.0), 0.0)
    size_bits = jnp.broadcast_to(jnp.asarray(bits, rate_bps.dtype), se.shape)
    sent = rate_bps > 0
    return jnp.where(
        sent, size_bits / (slot_s * jnp.where(sent, rate_bps, 1.0)), jnp.inf
    )  # [1, eq. (27)]


def whole_slots(
    slots: Float[Array, "*shape"],  # durations
) -> Int[Array, "*shape"]:
    """Return max(1, ceil(.)) as int32 (B3); what never ends takes NEVER_SLOTS.

    A duration within float32 rounding above a whole number counts as that number: Proposition 1
    makes all broadcasts end together, and rounding must not part them by a slot.
    """
    settled = jnp.ceil(slots * (1.0 - 2e-6))
    return jnp.minimum(jnp.maximum(settled, 1.0), float(NEVER_SLOTS)).astype(jnp.int32)


def aggregated_slots(
    slots: Num[Array, "*shape"],  # duration of each transfer
    active: Bool[Array, "*shape"],  # which transfers there are
) -> Num[Array, ""]:
    """Return Gamma_T of eq. (26): the longest duration, 0 if nothing is sent.

    `slots` and `active` are (rx, tx) with `schedule.links`, or (tx,) with `schedule.scheduled`;
    `vmap` for more axes. Under common-rate broadcast both give the same (C8).
    """
    return jnp.max(jnp.where(active, slots, jnp.zeros_like(slots)), initial=0)  # [1, eq. (26)]
