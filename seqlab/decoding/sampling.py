"""From logits to the next token."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from seqlab.decoding.prompts import check_count, check_number
from seqlab.types import Array

LEAST = 1e-30  # of what must be above 0, so that float32 can divide by it


class Sampling(NamedTuple):
    """How the next token is drawn.

        p = softmax(penalised logits / temperature),  cut to the `top_k` most probable tokens, then to the fewest most
        probable ones that together reach `top_p`

    temperature 0 takes the most probable token.

    Source   top-k: Fan et al. 2018, arXiv:1805.04833, §5; top-p: Holtzman et al. 2020, arXiv:1904.09751, §3.1.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float = 1.0

    def check(self) -> None:
        """Refuse what is no temperature, count, probability or penalty.

        Raises   UserError for temperature < 0, top_k < 1, top_p outside (0, 1], repetition_penalty ≤ 0.
        """
        check_number("temperature", self.temperature, 0, math.inf, "a number of at least 0 (0: greedy)")
        if self.top_k is not None:
            check_count("top_k", self.top_k)
        if self.top_p is not None:
            check_number("top_p", self.top_p, LEAST, 1, "a number above 0, at most 1")
        check_number("repetition_penalty", self.repetition_penalty, LEAST, 1 / LEAST, "a number above 0 (1: none)")


def penalise(logits_BV: Array, seen_BV: Array, penalty: float) -> Array:
    """Make the tokens that were seen less probable.

        x_i ← x_i / θ if x_i > 0, else x_i θ    for the tokens i that were seen

    Source   Keskar et al. 2019, arXiv:1909.05858, §4.1.
    Differs  There every x_i is divided, which makes those below 0 more probable.
    """
    return jnp.where(seen_BV, jnp.where(logits_BV > 0, logits_BV / penalty, logits_BV * penalty), logits_BV)


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
