"""Classification of pictures that are read pixel by pixel."""

import dataclasses
from typing import Any, ClassVar

import numpy as np

from seqlab.data.records import Records
from seqlab.tasks.image_classification import ImageClassification
from seqlab.tasks.over_examples import Encoded

SEED = 1729
"""The one order of permuted pixels, so that all runs read them in the same."""


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
