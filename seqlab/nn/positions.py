"""Positions for attention, which by itself sees a set: vectors for the inputs, turns or biases for the scores.

Positions are integers, given with every call: rows of a batch may differ in theirs, and a step goes on with its own.
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from seqlab.nn.checks import check_choice, check_positive
from seqlab.types import Array, require

BASE = 10_000.0

MERGES: dict[str, Callable[[Array, Array], Array]] = {
    "add": lambda x_BTD, p_BTD: x_BTD + p_BTD,
    "concat": lambda x_BTD, p_BTd: jnp.concatenate(
        [x_BTD, jnp.broadcast_to(p_BTd, (*x_BTD.shape[:-1], p_BTd.shape[-1]))], -1
    ),
}


class Positions(nn.Module):
    """Nothing about positions, and the places where a kind may say something about them.

        embed    once, where the sequence enters
        rotate   queries and keys, before their product
        bias     added to the scores; None for nothing

    Shapes   t_BT of queries and s_BS of keys, integers, the leading axis B or 1.
    """

    def embed(self, x_BTD: Array, t_BT: Array) -> Array:
        return x_BTD

    def rotate(self, z_BTHK: Array, t_BT: Array) -> Array:
        return z_BTHK

    def bias(self, n_heads: int, t_BT: Array, s_BS: Array) -> Array | None:
        return None


class VectorPositions(Positions):
    """What the kinds share that are one vector a position: it is added to the inputs or appended to them.

        x_t + p_t    or    [x_t; p_t]

    Shapes   x_BTD, t_BT -> x_BTD, or x_BT(D+d) for `concat`, where d is `d_position`, or D when that is null.
    Raises   UserError for an unknown merge, d_position < 1, and a d_position with `add`, whose vectors are D wide.
    """

    merge: str = "add"
    d_position: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("merge", self.merge, MERGES)
        if self.d_position is not None:
            check_positive("d_position", self.d_position)
            require(
                self.merge == "concat",
                f"d_position is {self.d_position}, but vectors that are added are as wide as the inputs: "
                "leave it null or set merge=concat",
            )

    def vectors(self, t_BT: Array, d: int) -> Array:
        raise NotImplementedError

    def embed(self, x_BTD: Array, t_BT: Array) -> Array:
        d = x_BTD.shape[-1] if self.d_position is None else self.d_position
        return MERGES[self.merge](x_BTD, self.vectors(t_BT, d).astype(x_BTD.dtype))


class Sinusoidal(VectorPositions):
    """Add or append waves of the position.

    x_t + sinusoid(t)    or    [x_t; sinusoid(t)]

    Shapes   as `VectorPositions`.
    Source   Vaswani et al. 2017, arXiv:1706.03762, §3.5.
    """

    def vectors(self, t_BT: Array, d: int) -> Array:
        return sinusoid(t_BT, d)


class Learned(VectorPositions):
    """Add or append a learned vector of the position.

    x_t + E[t]    or    [x_t; E[t]]    t < max_length

    Shapes   as `VectorPositions`; E is `max_length` × d.
    Raises   UserError for max_length < 1, for more steps than max_length, and for known positions beyond it.
    Source   Gehring et al. 2017, arXiv:1705.03122, §3.1; E starts as in GPT-2 and BERT, N(0, 0.02²).
    Differs  A position that is known only when the compiled program runs, and is negative or beyond max_length, gives
             NaN: no vector of another position stands in for it.
    """

    max_length: int = 512

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("max_length", self.max_length)

    @nn.compact
    def vectors(self, t_BT: Array, d: int) -> Array:
        n = t_BT.shape[-1]
        if not isinstance(t_BT, jax.core.Tracer):
            n = max(n, int(np.max(t_BT, initial=-1)) + 1)
        require(
            n <= self.max_length,
            f"max_length is {self.max_length}, but {n} positions are asked for: learned positions end there; "
            "set a greater max_length or take positions without an end (sinusoidal, rotary, alibi, relative)",
        )
        E_Nd = self.param("embedding", nn.initializers.normal(0.02), (self.max_length, d))
        return jnp.asarray(E_Nd).at[t_BT].get(mode="fill", wrap_negative_indices=False)


class Rotary(Positions):
    """Turn each pair of features by an angle that grows with the position, so that q · k depends on t − s alone.

        [z_2i; z_2i+1]  ←  [cos θ, −sin θ; sin θ, cos θ] [z_2i; z_2i+1]        θ = t / 10000^(2i/K)

    Shapes   z_BTHK, t_BT -> z_BTHK, computed in float32.
    Raises   UserError for an odd K.
    Source   Su et al. 2021, arXiv:2104.09864, eqs. 15 and 34.
    """

    def rotate(self, z_BTHK: Array, t_BT: Array) -> Array:
        K = z_BTHK.shape[-1]
        require(K % 2 == 0, f"a head is {K} wide, but rotary positions turn pairs of features: its width must be even")
        angle_BT1I = angles(t_BT, K)[..., None, :]
        cos, sin = jnp.cos(angle_BT1I), jnp.sin(angle_BT1I)
        even, odd = z_BTHK[..., ::2], z_BTHK[..., 1::2]  # times float32 is float32
        turned_BTHI2 = jnp.stack([even * cos - odd * sin, even * sin + odd * cos], -1)
        return turned_BTHI2.reshape(z_BTHK.shape).astype(z_BTHK.dtype)


class Alibi(Positions):
    """Lower each score in proportion to the distance, each head with a slope of its own.

    bias_hts = −m_h |t − s|    m = `slopes(n_heads)`

    Shapes   t_BT, s_BS -> bias_BHTS in float32.
    Source   Press, Smith, Lewis 2022, arXiv:2108.12409, §3.
    Differs  |t − s| where the paper, causal throughout, has t − s: the same for s ≤ t.
    """

    def bias(self, n_heads: int, t_BT: Array, s_BS: Array) -> Array:
        distance_BTS = jnp.abs(offsets(t_BT, s_BS)).astype(jnp.float32)
        return -jnp.asarray(slopes(n_heads), jnp.float32)[:, None, None] * distance_BTS[:, None]


class Relative(Positions):
    """Add to each score a learned scalar of the offset's bucket.

    bias_hts = E[bucket(t − s), h]

    Shapes   t_BT, s_BS -> bias_BHTS in float32; E is `n_buckets` × H, one for all that ask one instance.
    Raises   UserError for too few buckets, an odd number of them for two directions, and a max_distance that the
             buckets of one offset each reach already.
    Source   Raffel et al. 2020, arXiv:1910.10683, §2.1; E starts as in the authors' T5X.
    """

    n_buckets: int = 32
    max_distance: int = 128
    bidirectional: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        least = 4 if self.bidirectional else 2
        require(
            self.n_buckets >= least and not (self.bidirectional and self.n_buckets % 2),
            f"n_buckets is {self.n_buckets}, but it must be at least {least}"
            + (" and even, half of them for each direction" if self.bidirectional else ""),
        )
        n_single = self.n_buckets // least
        require(
            self.max_distance > n_single,
            f"max_distance is {self.max_distance}, but it must be above {n_single}, the number of buckets that hold "
            f"one offset each when n_buckets is {self.n_buckets}",
        )

    @nn.compact
    def bias(self, n_heads: int, t_BT: Array, s_BS: Array) -> Array:
        init = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform")
        E_UH = self.param("embedding", init, (self.n_buckets, n_heads))
        # By the offset first, cut where the last bucket begins: what is looked up T × S times is one small table.
        d = self.max_distance
        U_O = bucket(np.arange(-d, d + 1), self.n_buckets, d, self.bidirectional)
        E_HO = E_UH[U_O].T.astype(jnp.promote_types(E_UH.dtype, jnp.float32))
        return jnp.moveaxis(E_HO[:, jnp.clip(offsets(t_BT, s_BS), -d, d) + d], 0, 1)


def sinusoid(t: Array, d: int) -> Array:
    """Waves of a position, sines and cosines in turn, from a period of 2π to one of almost 10000 · 2π.

    p_2i   = sin(t / 10000^(2i/d))
    p_2i+1 = cos(t / 10000^(2i/d))

    Shapes   t of any shape -> (*shape, d) in float32.
    Source   Vaswani et al. 2017, arXiv:1706.03762, §3.5.
    Differs  An odd d ends with a sine without its cosine.
    """
    angle = angles(t, d)
    return jnp.stack([jnp.sin(angle), jnp.cos(angle)], -1).reshape(*angle.shape[:-1], -1)[..., :d]


def angles(t: Array, d: int) -> Array:
    """t / 10000^(2i/d) for 2i < d, on a new last axis, in float32."""
    frequency = jnp.asarray(BASE ** (-np.arange(0, d, 2) / d), jnp.float32)
    return jnp.asarray(t, jnp.float32)[..., None] * frequency


def offsets(t_BT: Array, s_BS: Array) -> Array:
    """o_bts = t_bt − s_bs."""
    return t_BT[:, :, None] - s_BS[:, None, :]


def slopes(n_heads: int) -> np.ndarray:
    """A slope for each head, from steep to flat.

    m_h = 2^(−8h/n)    h = 1 … n = n_heads, a power of two

    Other numbers of heads take the slopes of the next lower power of two, then every second one of the next higher.

    Shapes   -> m_H.
    Source   Press, Smith, Lewis 2022, arXiv:2108.12409, §3 and the authors' code.
    """
    n = 2 ** (n_heads.bit_length() - 1)
    h = np.concatenate([np.arange(1, n + 1), np.arange(0.5, n_heads - n)])
    return 2 ** (-8 * h / n)


def bucket(offset: np.ndarray, n_buckets: int, max_distance: int, bidirectional: bool) -> np.ndarray:
    """Number offsets t − s: the near ones each for itself, the far ones in ranges that grow as their logarithm.

        bucket(o) = o                                              o < e = n/2
                    min(n − 1, e + ⌊(n − e) log(o/e) / log(o_max/e)⌋)   else

    With one direction n = n_buckets and s > t falls to o = 0; with two, n = n_buckets / 2, o is |t − s|, and the
    buckets of s > t come after those of s ≤ t.

    Shapes   any shape -> the same, in [0, n_buckets).
    Source   Raffel et al. 2020, arXiv:1910.10683, §2.1 and the authors' code.
    """
    n = n_buckets // 2 if bidirectional else n_buckets
    o = np.abs(offset) if bidirectional else np.maximum(offset, 0)
    e = n // 2
    ranges = (n - e) * np.log(np.maximum(o, e) / e) / np.log(max_distance / e)
    # Where a range begins at a whole offset, rounding must not put that offset into the one before.
    far = np.minimum(n - 1, e + np.floor(ranges + 1e-9).astype(int))
    return np.where(o < e, o, far) + (n * (offset < 0) if bidirectional else 0)
