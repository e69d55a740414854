"""Losses and metrics as sums: each function returns `(total, weight)`, to be added up and divided once at the end.

Shapes   logits_BTV with labels_BT and weights_BT, for one target a step; the axis T is absent for one target a row.
         y_BT, targets_BT, weights_BT: any one shape.
Weights  0 = ignored. What a model says there, NaN included, reaches neither the value nor the gradient.
Dtype    Everything is summed in float32, whatever the outputs came in.
"""

import jax.numpy as jnp
import optax

from seqlab.types import Array, Batch, Sum, Sums


def cross_entropy(logits_BTV: Array, labels_BT: Array, weights_BT: Array) -> Sum:
    """Sum the negative log-likelihood of the labels.

    Σ w · (logsumexp_v logits_v − logits_label),  Σ w
    """
    logits_BTV, labels_BT = _blank(logits_BTV, weights_BT), _blank_labels(labels_BT, weights_BT)
    return _sum(optax.softmax_cross_entropy_with_integer_labels(logits_BTV, labels_BT), weights_BT)


def accuracy(logits_BTV: Array, labels_BT: Array, weights_BT: Array) -> Sum:
    """Count the labels that have the largest logit.

    Σ w · [argmax_v logits_v = label],  Σ w
    """
    return _sum(logits_BTV.argmax(-1) == labels_BT, weights_BT)


def sequence_accuracy(logits_BTV: Array, labels_BT: Array, weights_BT: Array) -> Sum:
    """Count the rows that are right at every weighted step; a row without a weighted step is left out.

    Σ_b r_b · [all_t: w_bt = 0 or argmax_v logits_btv = label_bt],  Σ_b r_b   with r_b = [any_t: w_bt ≠ 0]
    """
    ignored_BT = weights_BT == 0
    right_B = ((logits_BTV.argmax(-1) == labels_BT) | ignored_BT).all(-1)
    return _sum(right_B, ~ignored_BT.all(-1))


def of_tokens(logits_BTV: Array, batch: Batch) -> Sums:
    """What is measured of tokens that are written: loss, accuracy, sequence_accuracy."""
    told = logits_BTV, batch.targets, batch.weights
    return {"loss": cross_entropy(*told), "accuracy": accuracy(*told), "sequence_accuracy": sequence_accuracy(*told)}


def squared_error(y_BT: Array, targets_BT: Array, weights_BT: Array) -> Sum:
    """Sum the squared errors.

    Σ w · (y − target)²,  Σ w
    """
    return _sum(jnp.square(_errors(y_BT, targets_BT, weights_BT)), weights_BT)


def absolute_error(y_BT: Array, targets_BT: Array, weights_BT: Array) -> Sum:
    """Sum the absolute errors.

    Σ w · |y − target|,  Σ w
    """
    return _sum(jnp.abs(_errors(y_BT, targets_BT, weights_BT)), weights_BT)


def within(y_BT: Array, targets_BT: Array, weights_BT: Array, tolerance: float) -> Sum:
    """Count the errors that are smaller than a tolerance.

    Σ w · [|y − target| < tolerance],  Σ w
    """
    return _sum(jnp.abs(_errors(y_BT, targets_BT, weights_BT)) < tolerance, weights_BT)


def _sum(values: Array, weights: Array) -> Sum:
    weights = weights.astype(jnp.float32)
    return jnp.sum(values.astype(jnp.float32) * weights), jnp.sum(weights)


def _blank(logits_BTV: Array, weights_BT: Array) -> Array:
    # The blanking stands before the loss: 0 · NaN is NaN, and so is the gradient through a masked NaN.
    return jnp.where(weights_BT[..., None] == 0, 0.0, logits_BTV.astype(jnp.float32))


def _blank_labels(labels_BT: Array, weights_BT: Array) -> Array:
    return jnp.where(weights_BT == 0, 0, labels_BT)


def _errors(y_BT: Array, targets_BT: Array, weights_BT: Array) -> Array:
    errors_BT = y_BT.astype(jnp.float32) - targets_BT.astype(jnp.float32)
    return jnp.where(weights_BT == 0, 0.0, errors_BT)
