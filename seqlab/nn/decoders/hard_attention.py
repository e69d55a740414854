"""A recurrent decoder that looks at one place of the source before each step, and learns where by trying."""

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from seqlab.nn.bridge import TanhBridge
from seqlab.nn.decoders.fixed_context import beside
from seqlab.nn.decoders.soft_attention import AttentionState, advance, hidden
from seqlab.nn.masks import last_step, valid_mask
from seqlab.nn.reinforce import Choices
from seqlab.nn.rows import row_keys
from seqlab.nn.scores import Additive
from seqlab.nn.source_attention import Memory, clear_source
from seqlab.types import Array, Encoding, require


def choose(scores_BS: Array, valid_BS: Array, noise_BS: Array) -> tuple[Array, Array, Array, Array]:
    """Choose a real place: a sample of the softmax for noise of the standard Gumbel distribution, its mode for none.

        π = softmax(scores)    i = argmax_s (log π_s + noise_s)    H = −Σ_s π_s log π_s

    Shapes   -> i_B, log π_i _B, H_B, π_BS; zeros for a row without a real place.
    """
    a_BS = scores_BS.astype(jnp.promote_types(scores_BS.dtype, jnp.float32))
    log_π_BS = jax.nn.log_softmax(jnp.where(valid_BS, a_BS, -1e30))
    log_π_BS = jnp.where(valid_BS, log_π_BS, 0)
    i_B = jnp.argmax(jnp.where(valid_BS, lax.stop_gradient(log_π_BS) + noise_BS, -jnp.inf), -1)
    log_probability_B = jnp.take_along_axis(log_π_BS, i_B[:, None], 1)[:, 0]
    entropy_B = -jnp.sum(jnp.exp(log_π_BS) * log_π_BS, -1)
    return i_B, log_probability_B, entropy_B, jnp.where(valid_BS, jnp.exp(log_π_BS), 0)


class HardAttention(nn.Module):
    """A recurrent layer that reads, besides its input, the source at one place, which it draws.

        s_0 = bridge(source);   π_t = softmax_i score(W s_{t−1}, U z_i);   i_t ~ π_t in training, else its mode
        c_t = z_{i_t};   s_t = layer(s_{t−1}, [x_t; c_t]);   gives out [s_t; c_t];   b_t = wᵀ s_{t−1} + b

    The draw has no gradient: `reinforce_loss` makes it, for π and for the baseline, from the `choices` of the
    encoding. With an `entropy_bonus` it holds π open. The key is drawn from "dropout". π is sown as "weights" into the
    collection "intermediates" for who asks for it.

    Shapes   start: source, lengths_B -> state; x_BTD, lengths_B, state -> y_BTF, last_BF, state, choices;
             weights_BHTS with H = 1.
    Raises   UserError for an entropy_bonus below 0, and as its layer, its bridge and its score.
    Source   Xu et al. 2015, arXiv:1502.03044, §4.1; Williams 1992; the draw by noise: Gumbel 1954.
    Differs  The baseline is a learned function of the state, where Xu et al. take a moving average. Masks that the
             layer would draw once a row (recurrent and variational dropout) are drawn at each step.
    """

    layer: Callable[..., nn.Module]
    features: int
    score: Callable[[], nn.Module] = Additive
    bridge: Callable[[], nn.Module] = TanhBridge
    entropy_bonus: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        require(self.entropy_bonus >= 0, f"entropy_bonus is {self.entropy_bonus}, but it must be at least 0")

    def setup(self):
        self.core, self.cross = self.layer(features=self.features), self.bridge()
        self.W = nn.DenseGeneral((1, self.features))
        self.U = nn.DenseGeneral((1, self.features), use_bias=False)
        self.fit, self.baseline = self.score(), nn.Dense(1)

    def start(self, source: Encoding, lengths_B: Array | None = None) -> AttentionState:
        state = self.cross(source, self.core.init_state(source.last_BF.shape[0]))
        z_BSD, valid_BS = clear_source(source.y_BTF, lengths_B)
        return AttentionState(state, Memory(self.U(z_BSD), z_BSD[:, :, None], valid_BS))

    def room(self) -> int | None:
        return None

    def __call__(
        self, x_BTD: Array, lengths_B: Array | None = None, *, state: AttentionState, train: bool = False
    ) -> Encoding:
        (B, T, _), S = x_BTD.shape, state.memory.valid_BS.shape[1]
        noise_BTS = jnp.zeros((B, T, S))
        if train:
            keys_B = row_keys(self.make_rng("dropout"), B)
            noise_BTS = jax.vmap(partial(jax.random.gumbel, shape=(T, S)))(keys_B)
        return self.read(x_BTD, lengths_B, noise_BTS, state=state, train=train)

    def step(self, state: AttentionState, x_BD: Array) -> tuple[AttentionState, Array]:
        noise_BS = jnp.zeros(state.memory.valid_BS.shape)
        layer, (y_BF, *_) = self.advance(state.layer, state.memory, x_BD, noise_BS, None, train=False, asked=False)
        return AttentionState(layer, state.memory), y_BF

    def read(
        self, x_BTD: Array, lengths_B: Array | None, noise_BTS: Array, *, state: AttentionState, train: bool
    ) -> Encoding:
        """All steps, each with the choice that its noise makes."""
        real_BT = None if lengths_B is None else valid_mask(lengths_B, x_BTD.shape[1])
        asked = self.is_mutable_collection("intermediates") and not self.is_initializing()

        def body(decoder: HardAttention, layer: Any, per_step: tuple[Array, Array, Array | None]) -> Any:
            return decoder.advance(layer, state.memory, *per_step, train=train, asked=asked)

        scan = nn.scan(
            body, variable_broadcast="params", split_rngs={"params": False, "dropout": True}, in_axes=1, out_axes=1
        )
        layer, (y_BTF, choices, π_BTS) = scan(self, state.layer, (x_BTD, noise_BTS, real_BT))
        if asked:
            self.sow("intermediates", "weights", π_BTS[:, None])
        return Encoding(y_BTF, last_step(y_BTF, lengths_B), AttentionState(layer, state.memory), choices)

    def advance(
        self,
        layer: Any,
        memory: Memory,
        x_BD: Array,
        noise_BS: Array,
        real_B: Array | None,
        *,
        train: bool,
        asked: bool,
    ) -> tuple[Any, tuple[Array, Choices, Array | None]]:
        """One step: the layer's state, [s_t; c_t], the choice, and π_BS if asked."""
        s_BF = hidden(layer, x_BD.dtype)
        scores_B11S = self.fit(self.W(s_BF[:, None]), memory.k_BSGK)
        i_B, log_probability_B, entropy_B, π_BS = choose(scores_B11S[:, 0, 0], memory.valid_BS, noise_BS)
        c_BD = jnp.take_along_axis(memory.v_BSGK[:, :, 0], i_B[:, None, None], 1)[:, 0]
        layer, y_BF = advance(self.core, layer, beside(x_BD, c_BD), c_BD, real_B, train)
        chosen_B = memory.valid_BS.any(1) if real_B is None else memory.valid_BS.any(1) & real_B
        baseline_B = self.baseline(lax.stop_gradient(s_BF))[:, 0]
        choices = Choices(log_probability_B, baseline_B, self.entropy_bonus * entropy_B)
        choices = jax.tree.map(lambda a_B: jnp.where(chosen_B, a_B, 0), choices)
        return layer, (y_BF, choices, π_BS if asked else None)
