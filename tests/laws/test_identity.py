"""Laws of the encoder that hands on what it is given: those of any sequence layer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kinds import LENGTHS, PADDED, B, D, T, build_node, draw

from seqlab.nn.identity import Identity
from seqlab.types import Encoding, UserError


@jax.jit
def run(x_BTD, lengths_B):
    encoding, pull = jax.vjp(lambda x_BTD: Identity(D).apply({}, x_BTD, lengths_B), x_BTD)
    return encoding, pull(jax.tree.map(jnp.cos, encoding))[0]


def test_it_hands_on_the_valid_steps_and_their_mean():
    x_BTD = draw("vectors", garbage=1)
    encoding, _ = run(x_BTD, LENGTHS)
    np.testing.assert_array_equal(encoding.y_BTF, np.where(PADDED[..., None], 0, x_BTD))
    for b, length in enumerate(LENGTHS):
        mean = x_BTD[b, :length].mean(0) if length else np.zeros(D)
        np.testing.assert_allclose(encoding.last_BF[b], mean, rtol=1e-5, atol=1e-6)


def test_padding_changes_nothing_and_gets_no_gradient():
    results = [run(draw("vectors", garbage), LENGTHS) for garbage in (0, 1)]
    jax.tree.map(np.testing.assert_array_equal, *results)
    _, dx_BTD = results[0]
    assert (np.asarray(dx_BTD != 0).all(-1) == ~PADDED).all()


def test_stepping_equals_reading_the_row():
    x_BTD, layer = draw("vectors"), Identity()
    state = layer.init_state(B)
    for t in range(T):
        state, y_BD = layer.step(state, x_BTD[:, t])
        np.testing.assert_array_equal(y_BD, x_BTD[:, t])
    whole = layer.apply({}, x_BTD, state=layer.init_state(B))
    assert isinstance(whole, Encoding) and whole.state == state
    np.testing.assert_array_equal(whole.y_BTF, x_BTD)


def test_a_mean_in_bfloat16_is_summed_in_float32():
    encoding = Identity().apply({}, jnp.ones((1, 1009, 1), jnp.bfloat16), jnp.array([1009]))
    assert encoding.last_BF.dtype == jnp.bfloat16 and encoding.last_BF[0, 0] == 1


def test_another_width_is_refused():
    with pytest.raises(UserError, match="features=5 and inputs of width 3"):
        Identity(5).apply({}, draw("vectors"))


def test_a_tagger_begins_where_stepping_leads():
    """Although `last` is not the output at the last step."""
    tagger = build_node("model/tagger", "model", "model/encoder=identity")
    ids_BT = draw("ids")
    variables = tagger.init(jax.random.key(0), ids_BT, train=False)
    whole = tagger.apply(variables, ids_BT, train=False)
    _, logits = tagger.apply(variables, ids_BT, LENGTHS, method="begin")
    some = LENGTHS > 0
    np.testing.assert_allclose(logits[some], whole[some, LENGTHS[some] - 1], rtol=1e-5, atol=1e-6)
