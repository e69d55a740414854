"""Classification of pictures: which class is this one of, seen at once or pixel by pixel?"""

import dataclasses
import functools
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np

from seqlab.data.pictures import read_picture, read_pictures
from seqlab.data.records import Records, place
from seqlab.tasks.classification import Classification
from seqlab.tasks.over_examples import Encoded
from seqlab.types import Array, Batch

SEED = 1729
"""The one order of permuted pixels, so that all runs read them in the same."""
CHUNK = 1024  # pictures that are made floats of at once


class Means(NamedTuple):
    """The mean of each class, and the mean of the squared distance from it."""

    μ_CP: np.ndarray
    s: float


@dataclasses.dataclass(frozen=True)
class ImageClassification(Classification):
    """Say which class a picture is of.

        inputs    the picture: bytes, which a model reads as 0 … 1, or floats as they are
        target    its label
        loss      −ln p(label | picture)

    Baseline nearest class mean: p(c | x) ∝ exp(−‖x − μ_c‖² / s), s the mean of ‖x − μ_c‖² over training.
    Shapes   inputs_BHWC, targets_B; logits_BV with one of V for each class.
    Metrics  loss (cross-entropy, nats), accuracy.
    Raises   UserError for a picture that is not (H, W, C) of bytes or floats, or not as the first one of training, and
             as `Classification`.
    Source   LeCun, Bottou, Bengio, Haffner 1998, Gradient-Based Learning Applied to Document Recognition, §III; the
             baseline: Mensink et al. 2013, Distance-Based Image Classification, IEEE TPAMI 35, eq. 2, with W = I/√s.
    """

    owner: ClassVar[str] = "image_classification"
    fields: ClassVar[tuple[str, ...]] = ("image", "label")
    baseline: ClassVar[str] = "nearest class mean"
    vocab_size: ClassVar[None] = None
    target_per: ClassVar[str] = "row"

    @functools.cached_property
    def first(self) -> np.ndarray:
        records = self.records["train"]
        return read_picture(records[0], "image", place(records, 0, "train"))

    @property
    def image_shape(self) -> tuple[int, ...] | None:
        return self.first.shape

    @property
    def d_input(self) -> int | None:
        return None

    def encode(self, records: Records, split: str) -> Encoded:
        image_BHWC = np.stack(read_pictures(records, "image", split, self.first))
        return Encoded.of(image_BHWC, None, self.encode_label(records, split), np.ones(len(records)))

    def solve(self, batch: Batch) -> Array:
        (μ_CP, s), x_BP = self._means, batch.inputs.reshape(len(batch.inputs), -1) * self._unit
        # ‖x‖² is the same for all classes.
        return (2 * x_BP @ μ_CP.T - jnp.square(μ_CP).sum(1)) / s

    @property
    def _unit(self) -> float:
        """What inputs are multiplied by where they are read."""
        return 1 / 255 if self.first.dtype == np.uint8 else 1.0

    @functools.cached_property
    def _means(self) -> Means:
        """Of the training split, all of it, also where it is streamed."""
        records, C = self.records["train"], self.n_outputs
        n_C, sum_CP, squares = np.zeros(C), np.zeros((C, self.first.size)), 0.0
        for start in range(0, len(records), CHUNK):
            batch = self.encode(records[start : start + CHUNK], "train").batch
            x_BP = np.asarray(batch.inputs).reshape(len(batch.inputs), -1) * np.float32(self._unit)
            label_BC = np.eye(C, dtype=np.float32)[np.asarray(batch.targets)]
            n_C += label_BC.sum(0)
            sum_CP += label_BC.T @ x_BP
            squares += float(np.square(x_BP).sum())
        μ_CP = sum_CP / np.maximum(n_C, 1)[:, None]
        s = (squares - float((n_C * np.square(μ_CP).sum(1)).sum())) / n_C.sum()
        return Means(μ_CP.astype(np.float32), max(s, 1e-6))


@dataclasses.dataclass(frozen=True)
class Pixels(ImageClassification):
    """Read a picture pixel by pixel, row by row, and say in the end which class it is of.

        inputs    x_t = pixel_{π(t)}, of bytes 0 … 1;   π(t) = t, or with `permuted` an order that is drawn once
        target    the label of the picture

    Neighbours in the picture are W steps apart, and with `permuted` any number of them. π is the permutation of
    `numpy.random.RandomState(1729)`.

    Baseline as `ImageClassification`: the order of the pixels is nothing to it.
    Shapes   inputs_BTD with T = H W and D = C, targets_B; logits_BV.
    Metrics, Raises as `ImageClassification`.
    Source   Le, Jaitly, Hinton 2015, arXiv:1504.00941, §4.2.
    """

    permuted: bool = False
    owner: ClassVar[str] = "pixels"

    @property
    def image_shape(self) -> None:
        return None

    @property
    def d_input(self) -> int:
        return self.first.shape[-1]

    def encode(self, records: Records, split: str) -> Encoded:
        batch: Any = super().encode(records, split).batch
        x_BTD = batch.inputs.reshape(len(records), -1, self.d_input) * np.float32(super()._unit)
        if self.permuted:
            # RandomState, as its stream is the one that NumPy promises to keep.
            x_BTD = x_BTD[:, np.random.RandomState(SEED).permutation(x_BTD.shape[1])]
        return Encoded.of(x_BTD, None, batch.targets, batch.weights)

    @property
    def _unit(self) -> float:
        return 1.0
