"""Classification of films: of the whole of one, or of each frame."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from seqlab.data.padding import pad_rows
from seqlab.data.pictures import read_picture, read_pictures
from seqlab.data.records import Records, place
from seqlab.tasks.checks import require_size
from seqlab.tasks.classification import Classification
from seqlab.tasks.over_examples import Encoded


@dataclasses.dataclass(frozen=True)
class VideoClassification(Classification):
    """Say which class a film is of.

        inputs    its first `max_length` frames: bytes, which a model reads as 0 … 1, or floats as they are
        target    its label
        loss      −ln p(label | film)

    Baseline majority: p(c) = (n(c) + 1) / (n + C), whatever the film is.
    Shapes   inputs_BTHWC, lengths_B, targets_B; logits_BV with one of V for each class.
    Metrics  loss (cross-entropy, nats), accuracy.
    Raises   UserError for a film that is not (T, H, W, C) of bytes or floats, or whose frames are not as those of the
             first one of training, a label that no training record has, max_length < 1, and as `Classification`.
    Source   Karpathy et al. 2014, Large-scale Video Classification with Convolutional Neural Networks, CVPR.
    """

    max_length: int = 100
    owner: ClassVar[str] = "video_classification"
    fields: ClassVar[tuple[str, ...]] = ("video", "label")
    vocab_size: ClassVar[None] = None
    d_input: ClassVar[None] = None
    target_per: ClassVar[str] = "row"

    def __post_init__(self) -> None:
        require_size(self.owner, "max_length", self.max_length, 1)
        super().__post_init__()

    @functools.cached_property
    def first(self) -> np.ndarray:
        records = self.records["train"]
        return read_picture(records[0], "video", place(records, 0, "train"))

    @property
    def image_shape(self) -> tuple[int, ...]:
        return self.first.shape[1:]

    @property
    def longest(self) -> tuple[int, int]:
        return self.max_length, 0

    def encode(self, records: Records, split: str) -> Encoded:
        video_BTHWC, lengths_B, n_cut = pad_rows(read_pictures(records, "video", split, self.first), self.max_length)
        return Encoded.of(video_BTHWC, lengths_B, self.encode_label(records, split), np.ones(len(records)), n_cut)


@dataclasses.dataclass(frozen=True)
class VideoTagging(VideoClassification):
    """Say of each frame of a film which class it is of, as where what it shows is going.

        inputs    the first `max_length` frames
        targets   their labels
        loss      −(1/T) Σ_t ln p(label_t | film)

    Baseline as `VideoClassification`, of the frames' labels.
    Shapes   inputs_BTHWC, lengths_B, targets_BT; logits_BTV.
    Metrics  loss (cross-entropy, nats), accuracy, both of frames.
    Raises   UserError for a film with another number of labels than of frames, and as `VideoClassification`.
    Source   Yeung et al. 2015, arXiv:1507.05738, §3 (dense labels).
    """

    owner: ClassVar[str] = "video_tagging"
    fields: ClassVar[tuple[str, ...]] = ("video", "labels")
    target_per: ClassVar[str] = "step"

    def labels_of(self, record: Mapping[str, Any]) -> Sequence[Any]:
        """The labels that a film has: one a frame."""
        return record["labels"]

    def encode(self, records: Records, split: str) -> Encoded:
        films = read_pictures(records, "video", split, self.first)
        return self.encode_labels(records, split, pad_rows(films, self.max_length), list(map(len, films)), "frames")
