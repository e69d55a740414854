"""From logits to the next token."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from seqlab.types import Array, require


class Sampling(NamedTuple):
    """How the next token is drawn.

        p = softmax(logits / temperature),  cut to the `top_k` most probable tokens, then to the fewest most probable
        ones that together reach `top_p`

    temperature 0 takes the most probable token.

    Source   top-k: Fan et al. 2018, arXiv:1805.04833, §5; top-p: Holtzman et al. 2020, arXiv:1904.09751, §3.1.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def check(self) -> None:
        """Refuse what is no temperature, count or probability.

        Raises   UserError for temperature < 0, top_k < 1, top_p outside (0, 1].
        """
        require(self.temperature >= 0, f"temperature is {self.temperature}, but it must be at least 0 (0: greedy)")
        require(self.top_k is None or self.top_k >= 1, f"top_k is {self.top_k}, but it must be at least 1")
        require(self.top_p is None or 0 < self.top_p <= 1, f"top_p is {self.top_p}, but it must be above 0, at most 1")


def cut(logits_BV: Array, sampling: Sampling) -> Array:
    """The logits over the temperature, −∞ for the tokens that are cut."""
    logits_BV = logits_BV / sampling.temperature
    if sampling.top_k is not None and sampling.top_k < logits_BV.shape[-1]:
        least_B1 = lax.top_k(logits_BV, sampling.top_k)[0][:, -1:]
        logits_BV = jnp.where(logits_BV < least_B1, -jnp.inf, logits_BV)
    if sampling.top_p is not None:
        sorted_BV = -jnp.sort(-logits_BV)
        p_BV = jax.nn.softmax(sorted_BV)
        # A token stays while those before it do not reach top_p, so the first always does.
        stays_BV = jnp.cumsum(p_BV, -1) - p_BV < sampling.top_p
        least_B1 = jnp.min(jnp.where(stays_BV, sorted_BV, jnp.inf), -1, keepdims=True)
        logits_BV = jnp.where(logits_BV < least_B1, -jnp.inf, logits_BV)
    return logits_BV


def choose(keys_B: Array, logits_BV: Array, sampling: Sampling) -> Array:
    """The next token of each row, drawn with the row's own key.

    Shapes   keys_B, logits_BV -> ids_B.
    """
    if sampling.temperature == 0:
        return logits_BV.argmax(-1)
    return jax.vmap(jax.random.categorical)(keys_B, cut(logits_BV, sampling))
