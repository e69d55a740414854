"""Tagging: a tag for each token of a sentence, and the spans that tags can tell."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from seqlab.data.padding import pad_rows
from seqlab.data.records import Records, place
from seqlab.data.vocabulary import TOKENS, Vocabulary
from seqlab.tasks.checks import require_token_sizes
from seqlab.tasks.classification import Classification
from seqlab.tasks.over_examples import Encoded
from seqlab.tasks.spans import TagKinds, measure_spans, require_tag, tag_kinds
from seqlab.types import Array, Batch, Sums


@dataclasses.dataclass(frozen=True)
class Tagging(Classification):
    """Say the tag of each token, as its part of speech.

        inputs    the first `max_length` tokens of a sentence, by default in lower case
        targets   their tags
        loss      −(1/T) Σ_t ln p(tag_t | sentence)

    Baseline the tag that a token had most often: p(c | v) = (n(v, c) + p(c)) / (n(v) + 1), so that a token that
             training has not is tagged as tokens are in general, p(c) = (n(c) + 1) / (n + C).
    Shapes   inputs_BT, lengths_B, targets_BT; logits_BTV with one of V for each tag.
    Metrics  loss (cross-entropy, nats), accuracy, both of tokens.
    Raises   UserError for a sentence with another number of tags than of tokens, a tag that no training record has, a
             size out of range, and as `Classification`.
    Source   Petrov, Das, McDonald 2012, arXiv:1104.2086 (twelve tags for all languages); Charniak et al. 1993,
             Equations for part-of-speech tagging, AAAI (the baseline).
    """

    lower: bool = True
    min_count: int = 1
    max_size: int | None = None
    max_length: int = 100
    owner: ClassVar[str] = "tagging"
    fitted_by: ClassVar[tuple[str, ...]] = ("lower", "min_count", "max_size")
    fields: ClassVar[tuple[str, ...]] = ("tokens", "tags")
    baseline: ClassVar[str] = "most frequent tag"
    d_input: ClassVar[None] = None
    target_per: ClassVar[str] = "step"

    def __post_init__(self) -> None:
        require_token_sizes(self, ("min_count", "max_length"), 2, ", <unk> and a token")
        super().__post_init__()

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        def fit() -> Vocabulary:
            sentences = (record["tokens"] for record in self.records["train"])
            return Vocabulary.fit(TOKENS, sentences, self.max_size, min_count=self.min_count, lower=self.lower)

        return self.learn("vocabulary", fit)

    def labels_of(self, record: Mapping[str, Any]) -> Sequence[Any]:
        """The labels that a sentence has: one a token."""
        return record["tags"]

    @property
    def vocab_size(self) -> int:
        return self.vocabulary.size

    @property
    def longest(self) -> tuple[int, int]:
        return self.max_length, 0

    def encode(self, records: Records, split: str) -> Encoded:
        tokens = [record["tokens"] for record in records]
        padded = pad_rows([self.vocabulary.encode(sentence) for sentence in tokens], self.max_length)
        return self.encode_labels(records, split, padded, list(map(len, tokens)), "tokens")

    def solve(self, batch: Batch) -> Array:
        return jnp.asarray(self._log_p_VC)[batch.inputs]

    @functools.cached_property
    def _log_p_VC(self) -> np.ndarray:
        """ln p(tag | token) in the training split, all of it, also where it is streamed."""
        V, C = self.vocab_size, self.n_outputs
        n_VC = np.zeros((V, C))
        records = self.records["train"]
        for i, record in enumerate(records):
            numbers = self.classes.encode_steps(record["tags"], place(records, i, "train"))
            np.add.at(n_VC, (self.vocabulary.encode(record["tokens"]), numbers), 1)
        p_C = (n_VC.sum(0) + 1) / (n_VC.sum() + C)
        return np.log((n_VC + p_C) / (n_VC.sum(1, keepdims=True) + 1)).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class SpanTagging(Tagging):
    """Say the spans of a sentence, as the names in it, by tags: B-x begins one of type x, I-x goes on with it.

        inputs, targets, loss, baseline as `Tagging`

    A span counts as found if the tags say its first token, its last one and its type. A sentence that is cut has the
    spans that are left of it.

    Metrics  loss (cross-entropy, nats), accuracy, both of tokens; span_precision, span_recall, span_f1, over all spans.
    Raises   UserError for a tag that is neither O nor begins with B or I, and as `Tagging`.
    Source   Tjong Kim Sang & De Meulder 2003, arXiv:cs/0306050, §2 (the task and the measure); spans as `find_spans`.
    """

    owner: ClassVar[str] = "ner"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.kinds  # noqa: B018  Tags that tell no spans are refused at the door.

    def check_label(self, label: Any, where: str) -> None:
        super().check_label(label, where)
        require_tag(str(label).strip(), where)

    @functools.cached_property
    def kinds(self) -> TagKinds:
        return tag_kinds(self.owner, self.classes.names)

    def measure(self, outputs: Array, batch: Batch) -> Sums:
        spans = measure_spans(outputs.argmax(-1), batch.targets, batch.weights, self.kinds)
        return {**super().measure(outputs, batch), **spans}
