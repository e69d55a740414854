"""The gradient through choices that were drawn."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from seqlab.types import Array


class Choices(NamedTuple):
    """What the estimator needs of choices that were drawn; zeros where none was.

    Shapes   log_probability_BT of what was chosen; baseline_BT: the reward that what was known before the choice lets
             expect; bonus_BT: the entropy of the distribution, times the weight that it has in the loss.
    """

    log_probability_BT: Array
    baseline_BT: Array
    bonus_BT: Array


def reinforce_loss(log_likelihood_BT: Array, choices: Choices, weights_BT: Array) -> Array:
    """A term of value 0 whose gradient, beside that of the negative log-likelihood, makes the whole unbiased.

        R_t = Σ_{t' ≥ t} w_t' log p(y_t')
        ∇ = Σ_t −(R_t − b_t) ∇ log π_t + ∇_b (R_t − b_t)² − ∇ bonus_t

    with R_t and the first b_t held constant: E[∇(−Σ_t w_t log p(y_t)) + ∇] is the gradient of the expectation over
    the choices, in all but the baseline and without the bonus. A choice after which no weighted target comes has no
    part in it.

    Shapes   all _BT -> a scalar, summed over steps and rows, like the total of a loss.
    Source   Williams 1992, Machine Learning 8; Xu et al. 2015, arXiv:1502.03044, eqs. 11-12.
    Differs  Of the rewards a choice counts those that come after it; the baseline's error is Mnih & Gregor 2014,
             arXiv:1402.0030, §2.3.
    """
    log_probability_BT, baseline_BT, bonus_BT = choices

    def from_here_on(a_BT: Array) -> Array:
        return lax.cumsum(a_BT, 1, reverse=True)

    counted_BT = from_here_on((weights_BT > 0).astype(jnp.int32)) > 0
    reward_BT = from_here_on(jnp.where(weights_BT > 0, weights_BT * lax.stop_gradient(log_likelihood_BT), 0))
    advantage_BT = reward_BT - lax.stop_gradient(baseline_BT)
    terms_BT = (reward_BT - baseline_BT) ** 2 - advantage_BT * log_probability_BT - bonus_BT
    total = jnp.sum(terms_BT, where=counted_BT)
    return total - lax.stop_gradient(total)
