"""Laws of the order of examples and of the arrays they lie in."""

import itertools
from collections import Counter
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seqlab.data.buckets import choose_bounds, split_by_length
from seqlab.data.epoch import Epoch
from seqlab.data.order import shuffle
from seqlab.types import Batch

permute = jax.jit(shuffle, static_argnums=1)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 16, 17, 127])
def test_every_key_permutes(n):
    orders = [permute(jnp.arange(n), n, jax.random.key(seed)).tolist() for seed in range(5)]
    assert all(sorted(order) == list(range(n)) for order in orders)
    assert n < 16 or len(set(map(tuple, orders))) == 5


def test_a_place_does_not_depend_on_those_asked_for_with_it():
    whole = permute(jnp.arange(31), 31, jax.random.key(0))
    np.testing.assert_array_equal(permute(jnp.arange(7, 13), 31, jax.random.key(0)), whole[7:13])


def test_all_orders_of_a_few_are_about_as_likely():
    keys = jax.random.split(jax.random.key(0), 4800)
    orders = jax.jit(jax.vmap(lambda key: shuffle(jnp.arange(4), 4, key)))(keys)
    counts = Counter(map(tuple, np.asarray(orders).tolist()))
    assert len(counts) == 24
    # χ² with 23 degrees of freedom: above 49.7 in one of a thousand tables of true permutations.
    assert sum((count - 200) ** 2 / 200 for count in counts.values()) < 49.7


@pytest.mark.parametrize("seed", range(7))
def test_bounds_pad_least(seed):
    rng = np.random.default_rng(seed)
    lengths, n_buckets = rng.integers(0, 14, rng.integers(2, 20)), int(rng.integers(1, 5))

    def padding(bounds):
        return sum(min(bound for bound in bounds if bound >= length) - length for length in lengths)

    bounds = choose_bounds(lengths, n_buckets)
    longest = max(1, lengths.max())
    sets = (some for k in range(1, n_buckets + 1) for some in itertools.combinations(range(1, 15), k))
    assert bounds[-1] == longest and len(bounds) <= n_buckets
    assert padding(bounds) == min(padding(some) for some in sets if some[-1] == longest)


def examples(n=53, longest=11, seed=0):
    """Rows whose first id says which row it is, as rows of length 0 are none."""
    rng = np.random.default_rng(seed)
    lengths_B = rng.integers(1, longest + 1, n).astype(np.int32)
    inputs_BT = np.where(np.arange(longest) < lengths_B[:, None], rng.integers(1, 7, (n, longest)), 0).astype(np.int32)
    inputs_BT[:, 0] = np.arange(n)
    return Batch(inputs_BT, lengths_B, (inputs_BT.sum(1) % 3).astype(np.int32), np.ones(n, np.float32))


def test_rows_are_split_by_length_and_nothing_is_lost():
    batch = examples()
    parts = split_by_length(batch, (3, 8), "row")
    assert [part.inputs.shape[1] for part in parts] == [3, 8, 11]
    assert [part.lengths.max() for part in parts] == [3, 8, 11]
    rows = {int(row[0]): (row, target) for part in parts for row, target in zip(part.inputs, part.targets, strict=True)}
    assert sorted(rows) == list(range(53))
    for b, (row, target) in rows.items():
        np.testing.assert_array_equal(np.pad(row, (0, 11 - len(row))), batch.inputs[b])
        assert target == batch.targets[b]


def test_targets_are_cut_with_their_steps_or_behind_the_longest_of_a_part():
    lengths_B = np.array([2, 5, 1], np.int32)
    weights_BT = np.array([[1, 1, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 0, 0], [1, 0, 1, 0, 0, 0, 0]], np.float32)
    steps = Batch(np.zeros((3, 7), np.int32), lengths_B, np.arange(21).reshape(3, 7), weights_BT)
    short, long = split_by_length(steps, (2, 5), "step")
    assert short.targets.tolist() == [[0, 1], [14, 15]] and long.targets.tolist() == [[7, 8, 9, 10, 11]]
    short, long = split_by_length(steps, (2, 5), "sequence")
    assert short.inputs.shape == (2, 2) and short.targets.tolist() == [[0, 1, 2], [14, 15, 16]]
    assert long.targets.tolist() == [[7, 8, 9, 10, 11]]


@partial(jax.jit, static_argnums=0)
def take_turns(epoch, steps):
    return jax.vmap(epoch.turn)(steps)


@partial(jax.jit, static_argnums=(0, 1))
def draw_in_turn(epoch, k, part, turns, key):
    return jax.vmap(lambda turn: epoch.draw(k, part, turn, key))(turns)


def drawn(epoch, parts, steps, seed):
    """For each step which bucket its rows are of, and the rows."""
    turns, key = take_turns(epoch, jnp.asarray(steps)), jax.random.key(seed)
    batches = [
        jax.device_get(draw_in_turn(epoch, k, part, turns, key))
        for k, part in enumerate(jax.tree.map(jnp.asarray, tuple(parts)))
    ]
    return [
        (k, jax.tree.map(lambda leaf, i=i: leaf[i], batches[k]))
        for i, k in enumerate(np.asarray(turns.bucket).tolist())
    ]


def test_every_example_comes_once_an_epoch_in_another_order_each_time():
    parts = split_by_length(examples(), (3, 8), "row")
    epoch = Epoch(tuple(len(part.inputs) for part in parts), 5)
    assert epoch.n_steps == sum(-(-len(part.inputs) // 5) for part in parts)
    orders, shapes, together = [], [], []
    for e in range(3):
        steps = drawn(epoch, parts, range(e * epoch.n_steps, (e + 1) * epoch.n_steps), 7)
        rows = [
            int(row[0]) for _, batch in steps for row, real in zip(batch.inputs, batch.weights, strict=True) if real
        ]
        assert sorted(rows) == list(range(53))
        assert all((batch.lengths > 0).tolist() == (batch.weights > 0).tolist() for _, batch in steps)
        orders.append(rows)
        shapes.append([k for k, _ in steps])
        together.append({frozenset(batch.inputs[batch.weights > 0, 0].tolist()) for _, batch in steps})
    assert together[0] != together[1] != together[2]
    assert orders[0] != orders[1] != orders[2]
    assert shapes[0] != shapes[1] != shapes[2]


def test_seeds_have_rows_of_their_own_and_shapes_in_common():
    parts = split_by_length(examples(), (3, 8), "row")
    epoch = Epoch(tuple(len(part.inputs) for part in parts), 5)
    of_seeds = [drawn(epoch, parts, range(epoch.n_steps), seed) for seed in range(2)]
    assert [k for k, _ in of_seeds[0]] == [k for k, _ in of_seeds[1]]
    assert any((a.inputs != b.inputs).any() for (_, a), (_, b) in zip(*of_seeds, strict=True))


def test_a_batch_larger_than_the_data_has_every_row_once():
    part = examples(n=3)
    [(_, batch)] = drawn(Epoch((3,), 7), (part,), [11], 0)
    assert sorted(batch.inputs[batch.weights > 0, 0].tolist()) == [0, 1, 2]
    assert batch.lengths[batch.weights == 0].tolist() == [0] * 4
