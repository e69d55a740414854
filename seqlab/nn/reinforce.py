"""The gradient through choices that were drawn."""

import jax.numpy as jnp
from jax import lax

from seqlab.types import Array


def reinforce_loss(
    log_likelihood_BT: Array,
    log_probability_BT: Array,
    baseline_BT: Array,
    entropy_BT: Array,
    weights_BT: Array,
    entropy_bonus: float = 0.0,
) -> Array:
    """A term of value 0 whose gradient, beside that of the negative log-likelihood, makes the whole unbiased.

        R_t = Σ_{t' ≥ t} w_t' log p(y_t')
        ∇ = Σ_t −(R_t − b_t) ∇ log π_t + ∇_b (R_t − b_t)² − entropy_bonus ∇ H_t

    with R_t and the first b_t held constant: E[∇(−Σ_t w_t log p(y_t)) + ∇] is the gradient of the expectation over
    the choices (for entropy_bonus = 0, in all but the baseline). A choice after which no weighted target comes has no
    part in it.

    Shapes   all _BT -> a scalar, summed over steps and rows, like the total of a loss.
    Source   Williams 1992, Machine Learning 8; Xu et al. 2015, arXiv:1502.03044, eqs. 11-12.
    Differs  Of the rewards a choice counts those that come after it; the baseline's error is Mnih & Gregor 2014,
             arXiv:1402.0030, §2.3.
    """

    def from_here_on(a_BT: Array) -> Array:
        return lax.cumsum(a_BT, 1, reverse=True)

    counted_BT = from_here_on((weights_BT > 0).astype(jnp.int32)) > 0
    reward_BT = from_here_on(jnp.where(weights_BT > 0, weights_BT * lax.stop_gradient(log_likelihood_BT), 0))
    advantage_BT = reward_BT - lax.stop_gradient(baseline_BT)
    terms_BT = (reward_BT - baseline_BT) ** 2 - advantage_BT * log_probability_BT - entropy_bonus * entropy_BT
    total = jnp.sum(terms_BT, where=counted_BT)
    return total - lax.stop_gradient(total)
