"""Laws of attention as a pure function: every implementation, every mask."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sparing import sparing

from seqlab.nn import attention, scores
from seqlab.nn.attention import Dropout, attend, masked_softmax
from seqlab.nn.masks import Sight
from seqlab.nn.matrix import product
from seqlab.nn.soft_average import soft_average
from seqlab.types import UserError

B, T, S, H, K = 2, 7, 11, 6, 5
SIGHTS = {
    "all": {},
    "causal": {"causal": True},
    "window": {"window": 3},
    "causal window": {"causal": True, "window": 3},
}


def draw(n_kv_heads=H, dtype=np.float32):
    rng = np.random.default_rng(0)
    shapes = (B, T, H, K), (B, S, n_kv_heads, K), (B, S, n_kv_heads, K)
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


def look(**options):
    """The queries are the last T of S steps, the second row has two keys less; a query of it sees none at all."""
    valid_BS = np.arange(S) < np.array([[S], [S - 2]])
    t_BT = np.stack([np.arange(S - T, S), np.append(np.arange(S - T, S - 1), -100)])
    return Sight(t_BT, np.arange(S)[None], valid_BS, **options)


def bias(t_BT, s_BS):
    return -0.1 * jnp.arange(1, H + 1)[:, None, None] * jnp.abs(t_BT[:, :, None] - s_BS[:, None])[:, None]


def by_hand(q, k, v, sight):
    """The definition, one query at a time, in float64."""
    q, k, v = (np.asarray(a, np.float64) for a in (q, k, v))
    y = np.zeros((B, T, H, K))
    for b, t, h in np.ndindex(B, T, H):
        at, g = sight.t_BT[b, t], h * k.shape[2] // H
        seen = [
            s
            for s in range(S)
            if sight.valid_BS[b, s]
            and (s <= at or not sight.causal)
            and (sight.window is None or abs(at - s) < sight.window)
        ]
        if seen:
            a = np.array([q[b, t, h] @ k[b, s, g] / np.sqrt(K) - 0.1 * (h + 1) * abs(at - s) for s in seen])
            w = np.exp(a - a.max())
            y[b, t, h] = w @ v[b, seen, g] / w.sum()
    return y


@pytest.mark.parametrize(("options", "n_kv_heads"), list(zip(SIGHTS.values(), [H, 3, 1, 2], strict=True)), ids=SIGHTS)
def test_it_is_its_definition(options, n_kv_heads):
    q, k, v = draw(n_kv_heads)
    y, weights = jax.jit(lambda *a: attend(*a, look(**options), bias=bias, implementation="plain"))(q, k, v)
    np.testing.assert_allclose(y, by_hand(q, k, v, look(**options)), atol=1e-5)
    rows = np.asarray(weights).sum(-1)
    sees = np.asarray(look(**options).mask()).any(1)
    np.testing.assert_allclose(rows, np.broadcast_to(sees[:, None], rows.shape), atol=1e-6)


@pytest.mark.parametrize(("options", "chunk"), list(zip(SIGHTS.values(), [3, 4, 1, T], strict=True)), ids=SIGHTS)
def test_chunks_change_nothing(options, chunk, monkeypatch):
    monkeypatch.setattr(attention, "CHUNK", chunk)

    def run(implementation):
        @jax.jit
        def both(q, k, v):
            def f(q, k, v):
                return attend(q, k, v, look(**options), bias=bias, implementation=implementation)[0]

            y, pull = jax.vjp(f, q, k, v)
            return y, pull(jnp.cos(jnp.arange(y.size, dtype=y.dtype)).reshape(y.shape))

        return both(*draw(3))

    plain, chunked = run("plain"), run("chunked")
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), chunked, plain)


@pytest.mark.parametrize("window", sparing([None, 1, 3, T], lambda window: window != 3))
def test_blocks_and_chunks_of_a_row_change_nothing(window, monkeypatch):
    monkeypatch.setattr(attention, "BLOCK", 2)
    q = draw()[0]
    k, v = (a[:, :T] for a in draw(3)[1:])
    valid_BT = np.arange(T) < np.array([[T], [4]])
    sight = Sight(np.arange(T)[None], np.arange(T)[None], valid_BT, causal=True, window=window, in_order=True)

    def run(implementation):
        @jax.jit
        def both(q, k, v):
            y, pull = jax.vjp(lambda *a: attend(*a, sight, bias=bias, implementation=implementation)[0], q, k, v)
            return y, pull(jnp.cos(jnp.arange(y.size, dtype=y.dtype)).reshape(y.shape))

        return both(q, k, v)

    monkeypatch.setattr(attention, "CHUNK", 2)
    for implementation in ("blocks", "chunked"):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), run(implementation), run("plain"))
    none = attend(q, k, v, sight, implementation="blocks")[1]
    assert none is None, "the blocks do not make all weights"


def test_a_soft_average_is_its_definition_with_dropout_too():
    """In float64, with the gradients that JAX finds for the definition."""
    draws = np.random.default_rng(0)
    a, v, dy = (draws.normal(size=(B, H, *size)) for size in ((S, T), (S, K), (T, K)))
    kept, mask = draws.binomial(1, 0.7, a.shape) / 0.7, draws.random((B, S, T)) < 0.8

    def definition(a, v):
        w = jax.nn.softmax(jnp.where(mask[:, None], a, -1e30), axis=2)
        return jnp.einsum("bhst,bhsk->bhtk", w * kept, v)

    def both(f):
        y, pull = jax.vjp(f, a, v)
        return y, pull(jnp.asarray(dy))

    with jax.enable_x64(True):
        got, expected = both(lambda a, v: soft_average(a, mask, kept, v)), both(definition)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), got, expected)


@pytest.mark.parametrize(("D", "F"), [(5, 3), (3, 5), (3, 3)])
def test_a_product_has_the_derivatives_of_a_product_both_ways(D, F):
    draws = np.random.default_rng(0)
    x_ND, W_DF, dy_NF = (jnp.asarray(draws.normal(size=size), jnp.float32) for size in ((7, D), (D, F), (7, F)))
    got, expected = (
        (jax.vjp(f, x_ND, W_DF)[1](dy_NF), jax.jvp(f, (x_ND, W_DF), (-x_ND, W_DF**2))) for f in (product, jnp.matmul)
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), got, expected)


@pytest.mark.parametrize("dtype", sparing([np.float32, jnp.bfloat16], lambda dtype: dtype == jnp.bfloat16))
def test_a_query_that_sees_nothing_gets_zeros_and_gives_none(dtype):
    q, k, v = (jnp.asarray(a, dtype) for a in draw())
    nothing = Sight(np.arange(T)[None], np.arange(S)[None], np.zeros((B, S), bool))
    for implementation in ("plain", "chunked", "blocks"):
        run = jax.jit(
            lambda *a, i=implementation: jax.vjp(lambda *b: attend(*b, nothing, implementation=i)[0], *a)[1](q)
        )
        assert all(not np.any(gradient) for gradient in run(q, k, v))
        assert not np.any(attend(q, k, v, nothing, implementation=implementation)[0])


@pytest.mark.skipif(jax.default_backend() == "gpu", reason="there is a GPU here")
def test_cudnn_is_refused_where_there_is_no_gpu():
    with pytest.raises(
        UserError, match="implementation=cudnn is for NVIDIA's GPUs, but this is a cpu: leave it at auto"
    ):
        attend(*draw(), look(), implementation="cudnn")


def test_the_softmax_is_in_float32_in_every_dtype():
    """In bfloat16 256 + 1 is 256; weights over 512 equal keys still sum to one."""
    weights = masked_softmax(jnp.zeros((1, 1, 1, 512), jnp.bfloat16), jnp.ones((1, 1, 512), bool))
    assert weights.dtype == jnp.float32
    np.testing.assert_allclose(weights.sum(), 1, rtol=1e-6)


@pytest.mark.parametrize("implementation", ["plain", "chunked"])
@pytest.mark.slow
def test_dropout_keeps_the_mean_and_differs_between_queries(implementation, monkeypatch):
    monkeypatch.setattr(attention, "CHUNK", 3)
    q, k, v = draw()
    sight = look()

    @jax.jit
    def run(key):
        return attend(q, k, v, sight, dropout=Dropout(key, 0.3), implementation=implementation)[0]

    ys = np.stack(jax.vmap(run)(jax.random.split(jax.random.key(0), 4001)))
    expected, _ = attend(q, k, v, sight)
    np.testing.assert_allclose(ys.mean(0), expected, atol=0.1)
    same = np.zeros_like(q)
    ones = np.ones_like(v)
    kept = attend(same, k, ones, look(), dropout=Dropout(jax.random.key(0), 0.3), implementation=implementation)[0]
    assert len(np.unique(np.round(np.asarray(kept)[0, :, 0, 0], 5))) > 3, "queries, also of two chunks, share no mask"


@pytest.mark.parametrize("name", ["Dot", "ScaledDot", "General", "Additive"])
def test_a_score_is_its_equation(name):
    q, k, _ = draw()
    score = getattr(scores, name)()
    p = score.init(jax.random.key(0), q, k)
    got = score.apply(p, q, k)
    p = jax.tree.map(np.asarray, p.get("params", {}))
    for b, h, t, s in [(0, 0, 0, 0), (1, 5, 6, 10), (1, 2, 3, 4)]:
        x, z = q[b, t, h], k[b, s, h]
        expected = {
            "Dot": lambda x=x, z=z: x @ z,
            "ScaledDot": lambda x=x, z=z: x @ z / np.sqrt(K),
            "General": lambda x=x, z=z, h=h: x @ p["W"][h] @ z,
            "Additive": lambda x=x, z=z, h=h: np.tanh(x + z) @ p["v"][h],
        }[name]()
        np.testing.assert_allclose(got[b, h, t, s], expected, rtol=1e-4, atol=1e-5)


def test_an_unknown_implementation_is_refused():
    q, k, v = draw()
    with pytest.raises(UserError, match=r"implementation is 'flash'.*plain"):
        attend(q, k, v, look(), implementation="flash")
