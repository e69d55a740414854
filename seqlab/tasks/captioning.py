"""Captioning: a picture is looked at, then a text about it is written."""

import dataclasses
import functools
from collections import Counter
from pathlib import Path
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import lax

from seqlab.data.padding import pad_rows
from seqlab.data.picture_files import read_like
from seqlab.data.pictures import read_picture, read_pictures
from seqlab.data.records import Records, place, read_texts
from seqlab.data.vocabulary import Vocabulary
from seqlab.tasks.checks import require_token_sizes
from seqlab.tasks.over_examples import Encoded
from seqlab.tasks.writing import EOS, Writing
from seqlab.types import Array, Batch


@dataclasses.dataclass(frozen=True)
class Captioning(Writing):
    """Look at a picture, then write what it shows, and say that this is the end.

        inputs    the picture: bytes, which a model reads as 0 … 1, or floats as they are
        target    the first `max_target_length` of the text's words and `<eos>`
        loss      −(1/T) Σ_t ln p(y_t | y_1 … y_{t−1}, picture)

    Words keep their spaces, so that what is written needs no detokenising. A text that is cut has no end.

    Baseline unigram: p(y) = (n(y) + 1/V) / (n + 1), whatever came before; of texts that are written, the most frequent
             one of training.
    Shapes   inputs_BHWC; targets_BT; logits_BTV with V the size of the vocabulary.
    Metrics  loss (cross-entropy, nats), accuracy, sequence_accuracy; of texts that are written: bleu, chrf.
    Raises   UserError for a picture that is not (H, W, C) of bytes or floats, or not as the first one of training, a
             size out of range, and as `OverExamples`.
    Source   Vinyals et al. 2015, arXiv:1411.4555, §3; Xu et al. 2015, arXiv:1502.03044.
    """

    min_count: int = 1
    max_size: int | None = None
    max_target_length: int = 50
    owner: ClassVar[str] = "captioning"
    fitted_by: ClassVar[tuple[str, ...]] = ("min_count", "max_size")
    fields: ClassVar[tuple[str, ...]] = ("image", "text")
    baseline: ClassVar[str] = "unigram"
    written_baseline: ClassVar[str] = "most frequent text"
    vocab_size: ClassVar[None] = None
    d_input: ClassVar[None] = None

    def __post_init__(self) -> None:
        require_token_sizes(self, ("min_count", "max_target_length"), 3, ", <unk>, <eos> and a word")
        super().__post_init__()

    @functools.cached_property
    def first(self) -> np.ndarray:
        records = self.records["train"]
        return read_picture(records[0], "image", place(records, 0, "train"))

    @property
    def image_shape(self) -> tuple[int, ...]:
        return self.first.shape

    @functools.cached_property
    def target_vocabulary(self) -> Vocabulary:
        def fit() -> Vocabulary:
            texts = read_texts(self.records["train"], "text", "train")
            return Vocabulary.fit("word", texts, self.max_size, min_count=self.min_count, specials=[EOS])

        return self.learn("target_vocabulary", fit)

    @property
    def longest(self) -> tuple[int, int]:
        return 0, self.max_target_length

    def encode(self, records: Records, split: str) -> Encoded:
        image_BHWC = np.stack(read_pictures(records, "image", split, self.first))
        texts = [self.encode_target(text) for text in read_texts(records, "text", split)]
        targets = pad_rows(texts, self.max_target_length)
        return Encoded.of(image_BHWC, None, targets.rows_BT, targets.told_BT.astype(float), targets.n_cut)

    def encode_picture(self, file: Path) -> np.ndarray:
        """The picture of a file, of the shape of those of training: resized where the source resizes."""
        return read_like(file, self.first, resized=getattr(self.source, "size", None) is not None)

    def solve(self, batch: Batch) -> Array:
        # The compiler would take long to compute at once what follows from a constant.
        log_p_V = lax.optimization_barrier(jnp.asarray(self._log_p_V))
        return jnp.broadcast_to(log_p_V, (*batch.targets.shape, self.n_outputs))

    def texts(self, split: str) -> dict[str, list[str]]:
        """The references of a split: its texts as they are, neither cut nor with unknown words."""
        return {"reference": [record["text"] for record in self.records[split]]}

    def solve_written(self, split: str) -> list[str]:
        """What the baseline writes for the records of a split."""
        counts = Counter(record["text"] for record in self.records["train"])
        most_frequent = min(counts, key=lambda text: (-counts[text], text))
        return [most_frequent] * len(self.records[split])

    @functools.cached_property
    def _log_p_V(self) -> np.ndarray:
        """ln p(y) in the training split, all of it, also where it is streamed."""
        n_V = np.zeros(self.n_outputs)
        for record in self.records["train"]:
            np.add.at(n_V, self.encode_target(record["text"])[: self.max_target_length], 1)
        return np.log((n_V + 1 / len(n_V)) / (n_V.sum() + 1)).astype(np.float32)
