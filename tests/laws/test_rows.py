"""Laws of rows spread over devices: the same numbers, and nothing said between devices inside a loop."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seqlab.build import build
from seqlab.nn.dropout import dropout_mask, zoneout_masks
from seqlab.training.devices import make_mesh
from seqlab.training.replicas import sum_over_rows
from seqlab.training.step import make_gradient, make_measure
from seqlab.types import model_arguments

RECURRENT = "model.encoder.n_layers=2 model.encoder.dropout=0.3 model.encoder.layer.zoneout=0.2"
MODELS = [
    f"model/cell=gru model.inputs.dropout=0.3 model.encoder.layer.recurrent_dropout=0.3 {RECURRENT}",
    f"model/cell=flax_gru model.dropout=0.3 {RECURRENT}",
    "model/encoder=transformer model.encoder.n_layers=1 model.encoder.dropout=0.3 model.encoder.mixer.dropout=0.3",
]


@pytest.mark.slow
@pytest.mark.parametrize("overrides", MODELS)
def test_on_two_devices_the_gradient_is_the_same_and_summed_once(compose, overrides):
    parts = build(compose("task=reverse", "task.n_eval=12", "+debug=tiny", "trainer.batch_size=12", *overrides.split()))
    batch, key = parts.sets["validation"], jax.random.key(7)
    init = partial(parts.model.init, train=False)
    shapes = jax.eval_shape(init, key, *model_arguments(parts.model, batch))["params"]
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda a: rng.normal(scale=0.3, size=a.shape).astype(a.dtype), shapes)
    measure = make_measure(parts.model, parts.task, jnp.float32)

    def on(n_devices):
        mesh = make_mesh(jax.devices()[:n_devices], 1, 12)
        gradient = make_gradient(measure, 2, mesh)  # two micro-batches
        return jax.jit(gradient).lower(params, batch, key, 0).compile()

    one, two = on(1), on(2)
    expected, got = one(params, batch, key, 0), two(params, batch, key, 0)
    jax.tree.map(lambda e, g: np.testing.assert_allclose(g, e, rtol=2e-5, atol=1e-5), expected, got)
    computations = re.split(r"\n(?=\S)", two.as_text())
    talking = [c.split(" ", 1)[0] for c in computations if re.search(r" (all-reduce|all-gather|all-to-all)\(", c)]
    assert talking == ["ENTRY"]


def test_a_row_draws_its_masks_by_its_place_in_the_whole_batch():
    mesh = make_mesh(jax.devices()[:2], 1, 6)

    def masks(key, rows_B):
        n_rows = len(rows_B)
        zoneout = zoneout_masks(key, 0.5, 7, (jnp.zeros((n_rows, 5)),))[0]
        place_B = jax.nn.one_hot(rows_B, 6)  # the rows of this device in the whole batch
        return place_B.T @ dropout_mask(key, 0.5, (n_rows, 11)), jnp.einsum("br,tbf->trf", place_B, zoneout)

    one, two = (jax.jit(f)(jax.random.key(0), jnp.arange(6)) for f in (masks, sum_over_rows(masks, mesh)))
    jax.tree.map(np.testing.assert_array_equal, one, two)
    assert len(np.unique(one[0], axis=0)) == 6
