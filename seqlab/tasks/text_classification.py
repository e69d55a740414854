"""Classification of texts: which class is this one of?"""

import dataclasses
import functools
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from seqlab.data.padding import pad_rows
from seqlab.data.records import Records, read_texts
from seqlab.data.vocabulary import Vocabulary, require_kind
from seqlab.nn.masks import valid_mask
from seqlab.tasks.checks import require_token_sizes
from seqlab.tasks.classification import Classification
from seqlab.tasks.over_examples import Encoded
from seqlab.types import Array, Batch, require


@dataclasses.dataclass(frozen=True)
class TextClassification(Classification):
    """Say which class a text is of.

        inputs    the first `max_length` tokens of the text
        target    its label
        loss      −ln p(label | text)

    Words are those of the vocabulary, by default in lower case and without the spaces between them.

    Baseline naive Bayes: p(c | text) ∝ p(c) Π_t p(x_t | c), each count one more than it is.
    Shapes   inputs_BT, lengths_B, targets_B; logits_BV with one of V for each class.
    Metrics  loss (cross-entropy, nats), accuracy.
    Raises   UserError for a label that no training record has, fewer than two classes, a size out of range, and as
             `Classification`.
    Source   Pang, Lee, Vaithyanathan 2002, Thumbs up?, arXiv:cs/0205070, the task and the baseline (§5.1).
    """

    kind: str = "word"
    lower: bool = True
    min_count: int = 1
    max_size: int | None = None
    max_length: int = 400
    owner: ClassVar[str] = "text_classification"
    fitted_by: ClassVar[tuple[str, ...]] = ("kind", "lower", "min_count", "max_size")
    fields: ClassVar[tuple[str, ...]] = ("text", "label")
    baseline: ClassVar[str] = "naive Bayes"
    d_input: ClassVar[None] = None
    target_per: ClassVar[str] = "row"

    def __post_init__(self) -> None:
        require_kind(self.owner, self.kind)
        require_token_sizes(self, ("min_count", "max_length"), 2, ", <unk> and a token")
        super().__post_init__()

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        def fit() -> Vocabulary:
            texts = read_texts(self.records["train"], "text", "train")
            words = self.kind == "word"
            return Vocabulary.fit(
                self.kind, texts, self.max_size, min_count=self.min_count, lower=self.lower, spaces=not words
            )

        vocabulary = self.learn("vocabulary", fit)
        require(
            vocabulary.kind == self.kind,
            f"{self.owner} has kind {self.kind!r}, but that of {self.learned_from} is {vocabulary.kind!r}.",
        )
        require(vocabulary.size >= 2, f"{self.owner}: no token of train is seen {self.min_count} times (min_count).")
        return vocabulary

    @property
    def vocab_size(self) -> int:
        return self.vocabulary.size

    def encode(self, records: Records, split: str) -> Encoded:
        ids = [self.vocabulary.encode(text) for text in read_texts(records, "text", split)]
        ids_BT, lengths_B, n_cut = pad_rows(ids, self.max_length)
        return Encoded.of(ids_BT, lengths_B, self.encode_label(records, split), np.ones(len(records)), n_cut)

    @property
    def longest(self) -> tuple[int, int]:
        return self.max_length, 0

    def solve(self, batch: Batch) -> Array:
        told_BT1 = valid_mask(batch.lengths, batch.inputs.shape[1])[..., None]
        log_p_VC, log_p_C = self._log_counts
        return jnp.where(told_BT1, jnp.asarray(log_p_VC)[batch.inputs], 0.0).sum(1) + jnp.asarray(log_p_C)

    @functools.cached_property
    def _log_counts(self) -> tuple[np.ndarray, np.ndarray]:
        """ln p(token | class) and ln p(class) of the training split, all of it, also where it is streamed."""
        records = self.records["train"]
        n_VC, n_C = np.ones((self.vocab_size, self.n_outputs)), np.ones(self.n_outputs)
        labels = self.encode_label(records, "train")
        for text, label in zip(read_texts(records, "text", "train"), labels, strict=True):
            np.add.at(n_VC, (self.vocabulary.encode(text)[: self.max_length], label), 1)
            n_C[label] += 1
        return (np.log(n_VC / n_VC.sum(0)).astype(np.float32), np.log(n_C / n_C.sum()).astype(np.float32))
