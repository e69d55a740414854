"""The order of examples: a permutation that is computed and never stored."""

import jax
import jax.numpy as jnp
from jax import lax

from seqlab.types import Array

N_ROUNDS = 7
"""Four rounds look random to whoever sees few values (Luby & Rackoff 1988); halves of few bits want some more."""


def shuffle(places_B: Array, n: int, key: Array) -> Array:
    """Where a permutation of 0 … n−1 sends these places; each key has its own permutation.

        (l, r) ← (r, l ⊕ f_i(r))      i = 1 … rounds, with l and r the two halves of a number's bits

    Such a Feistel network permutes the numbers of 2h bits, whatever the functions f_i are. A number that leaves 0 … n−1
    is sent on until it is back; that permutes 0 … n−1. So the example of any step is known without a list of the
    epoch, and there is nothing to save.

    Shapes   places_B -> places_B, int32.
    Source   Luby & Rackoff 1988, How to construct pseudorandom permutations; sending on: Black & Rogaway 2002, Ciphers
             with arbitrary finite domains, §3.
    """
    h = max(1, -(-(n - 1).bit_length() // 2))
    keys = jax.random.bits(key, (N_ROUNDS,), jnp.uint32)

    def send(x_B: Array) -> Array:
        left_B, right_B = x_B >> h, x_B & ((1 << h) - 1)
        for i in range(N_ROUNDS):
            left_B, right_B = right_B, left_B ^ (_mix(right_B ^ keys[i]) >> (32 - h))
        return left_B << h | right_B

    def send_on(x_B: Array) -> Array:
        return jnp.where(x_B < n, x_B, send(x_B))

    return lax.while_loop(lambda x_B: (x_B >= n).any(), send_on, send(places_B.astype(jnp.uint32))).astype(jnp.int32)


def _mix(x: Array) -> Array:
    """Spread every bit over all: the finaliser of MurmurHash3."""
    x = (x ^ x >> 16) * jnp.uint32(0x85EBCA6B)
    x = (x ^ x >> 13) * jnp.uint32(0xC2B2AE35)
    return x ^ x >> 16
