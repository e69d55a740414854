"""Self-attention as a sequence layer, which can also take one step at a time."""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from seqlab.nn.checks import check_lengths, check_positive
from seqlab.nn.heads import MultiHead
from seqlab.nn.masks import Sight, last_step, valid_mask
from seqlab.nn.positions import Positions
from seqlab.types import Array, Encoding, require


class Cache(NamedTuple):
    """The keys and values of the steps so far.

    Shapes   k_BGSK, v_BGSK with room for S steps, heads first as products want them, length_B: how many each row has
             taken. Step t lies at t mod S, so that the last S steps are there.
    """

    k_BGSK: Array
    v_BGSK: Array
    length_B: Array


def known_empty(length_B: Array) -> bool:
    """Whether it is known, also to the compiler, that no row has taken a step: then the new steps are all there are."""
    return not isinstance(length_B, jax.core.Tracer) and not np.any(length_B)


class SelfAttention(MultiHead):
    """Multi-head self-attention: each step looks at the steps of its own row.

        q_h, k_h, v_h = W_q,h x, W_k,h x, W_v,h x
        y = W_o [y_1, …, y_H],   y_h = softmax(score(q_h, k_h) + bias) v_h

    `causal`: a step sees none after itself; `window`: none that is that far away or further. The state is a cache: of
    the last `window` steps, however many a row takes, or, where the window is none or greater, with room for
    `max_length` steps, and then a row that takes more gets NaN. The weights are sown as "weights" into the
    collection "intermediates" for who asks for it.

    Shapes   x_BTD, lengths_B -> y_BTF, last_BF, state: None, or the cache that follows the given one.
    Raises   UserError for sizes below 1, and as `MultiHead`.
    Source   Vaswani et al. 2017, arXiv:1706.03762, §3.2.2; Beltagy et al. 2020, arXiv:2004.05150 (window).
    """

    causal: bool = True
    window: int | None = None
    positions: Callable[..., Positions] = Positions
    max_length: int = 1024

    def __post_init__(self):
        super().__post_init__()
        check_positive("max_length", self.max_length)
        if self.window is not None:
            check_positive("window", self.window)

    def setup(self):
        super().setup()
        self.place = self.positions()

    @nn.nowrap
    def room(self) -> int | None:
        """The most steps that a row can take, None for no limit."""
        return self.max_length if self.window is None or self.window >= self.max_length else None

    def init_state(self, batch_size: int) -> Cache:
        G, S = self.n_kv_heads or self.n_heads, min(self.window or self.max_length, self.max_length)
        z_BGSK = jnp.zeros((batch_size, G, S, self.features // self.n_heads))
        # Of NumPy, so that also while tracing it is known to be empty.
        return Cache(z_BGSK, z_BGSK, np.zeros(batch_size, np.int32))  # type: ignore[arg-type]

    def __call__(
        self, x_BTD: Array, lengths_B: Array | None = None, *, state: Cache | None = None, train: bool = False
    ) -> Encoding:
        message = "attention with causal=false looks at all steps: it cannot take one step at a time"
        require(self.causal or state is None, message)
        B, T, _ = x_BTD.shape
        check_lengths(lengths_B, B)
        real_BT = valid_mask(lengths_B, T)
        x_BTD = jnp.where(real_BT[..., None], x_BTD, 0)
        t_BT = jnp.arange(T)[None] if state is None else state.length_B[:, None] + jnp.arange(T)
        q_BTHK = self.place.rotate(self.split(self.W_q, x_BTD), t_BT)
        k_BSGK, v_BSGK = self.place.rotate(self.split(self.W_k, x_BTD), t_BT), self.split(self.W_v, x_BTD)
        s_BS, valid_BS = t_BT, real_BT
        in_order = state is None or known_empty(state.length_B)
        if state is not None:
            before, state = state, self._append(state, k_BSGK, v_BSGK, t_BT, real_BT)
            if not in_order:
                # What a window's cache holds after several steps is not all that the first of them may look at.
                both = self.room() is None and T > 1
                cache = before if both else state
                s_BS = _places(cache)
                valid_BS = s_BS >= 0
                old = [z.astype(q_BTHK.dtype).swapaxes(1, 2) for z in (cache.k_BGSK, cache.v_BGSK)]
                if both:
                    s_BS = jnp.concatenate([s_BS, t_BT], 1)
                    valid_BS = jnp.concatenate([valid_BS, jnp.broadcast_to(real_BT, (B, T))], 1)
                    old = [jnp.concatenate(pair, 1) for pair in zip(old, (k_BSGK, v_BSGK), strict=True)]
                k_BSGK, v_BSGK = old

        def bias(t_BT: Array, s_BS: Array) -> Array | None:
            return self.place.bias(self.n_heads, t_BT, s_BS)

        sight, asked = Sight(t_BT, s_BS, valid_BS, self.causal, self.window, in_order), self.asked()
        y_BTHK, weights_BHTS = self.average(q_BTHK, k_BSGK, v_BSGK, sight, bias=bias, train=train, asked=asked)
        if asked:
            self.sow("intermediates", "weights", weights_BHTS)
        y_BTF = jnp.where(real_BT[..., None], self.merge(y_BTHK), 0)
        if state is not None and self.room() is not None:
            full_B = state.length_B > state.k_BGSK.shape[2]
            y_BTF = jnp.where(full_B[:, None, None], jnp.nan, y_BTF)
        return Encoding(y_BTF, last_step(y_BTF, lengths_B), state)

    def step(self, state: Cache, x_BD: Array) -> tuple[Cache, Array]:
        encoding = self(x_BD[:, None], state=state)
        return encoding.state, encoding.y_BTF[:, 0]

    def _append(self, cache: Cache, k_BTGK: Array, v_BTGK: Array, t_BT: Array, real_BT: Array) -> Cache:
        """The cache with the real steps written behind what each row has; what finds no room is dropped."""
        B, T = t_BT.shape
        S = cache.k_BGSK.shape[2]
        length_B = cache.length_B + jnp.broadcast_to(real_BT, (B, T)).sum(1, dtype=jnp.int32)
        stays_BT = real_BT & (t_BT < S if self.room() else t_BT >= length_B[:, None] - S)
        place = jnp.arange(B)[:, None], slice(None), jnp.where(stays_BT, t_BT % S, S)
        k_BGSK = cache.k_BGSK.at[place].set(k_BTGK.astype(cache.k_BGSK.dtype), mode="drop")
        v_BGSK = cache.v_BGSK.at[place].set(v_BTGK.astype(cache.v_BGSK.dtype), mode="drop")
        return Cache(k_BGSK, v_BGSK, length_B)


def _places(cache: Cache) -> Array:
    """Which step lies in each place of a cache, s_BS; below 0 where there is none yet."""
    S = cache.k_BGSK.shape[2]
    last_B1 = cache.length_B[:, None] - 1
    return last_B1 - (last_B1 - jnp.arange(S)) % S
