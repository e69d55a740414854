"""Translation: a text is read whole, then another is written."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import lax

from seqlab.data.padding import pad_rows
from seqlab.data.records import Records, read_texts
from seqlab.data.vocabulary import Vocabulary, require_kind
from seqlab.tasks.checks import require_token_sizes
from seqlab.tasks.over_examples import Encoded
from seqlab.tasks.writing import EOS, Writing
from seqlab.types import Array, Batch


@dataclasses.dataclass(frozen=True)
class Translation(Writing):
    """Read a text, then write what it is in another language, and say that this is the end.

        source    the first `max_length` tokens of the source
        target    the first `max_target_length` of the target's tokens and `<eos>`
        loss      −(1/T) Σ_t ln p(y_t | y_1 … y_{t−1}, source)

    Each side has a vocabulary of its own, of at most `max_size`. Tokens of the target keep their spaces, so that what
    is written needs no detokenising. A row of which a side is cut counts as cut; a target that is cut has no end.

    Baseline unigram of a place: p(y | t) = (n(t, y) + V p(y)) / (n(t) + V) with p(y) = (n(y) + 1/V) / (n + 1),
             whatever the source is; of texts that are written, the source as it is.
    Shapes   inputs_BS, lengths_B; targets_BT; logits_BTV with V the size of the target's vocabulary.
    Metrics  loss (cross-entropy, nats), accuracy, sequence_accuracy; of texts that are written: bleu, chrf.
    Raises   UserError for an unknown kind, a size out of range, and as `Vocabulary.fit` and `OverExamples`.
    Source   Sutskever et al. 2014, arXiv:1409.3215, §3; subwords: Sennrich et al. 2016, arXiv:1508.07909.
    Differs  Each side's subwords are joined by themselves.
    """

    kind: str = "subword"
    min_count: int = 1
    max_size: int | None = 2000
    max_length: int = 100
    max_target_length: int = 100
    owner: ClassVar[str] = "translation"
    fitted_by: ClassVar[tuple[str, ...]] = ("kind", "min_count", "max_size")
    fields: ClassVar[tuple[str, ...]] = ("source", "target")
    baseline: ClassVar[str] = "unigram of a place"
    written_baseline: ClassVar[str] = "copied source"
    d_input: ClassVar[None] = None

    def __post_init__(self) -> None:
        require_kind(self.owner, self.kind)
        require_token_sizes(self, ("min_count", "max_length", "max_target_length"), 3, ", <unk>, <eos> and a token")
        super().__post_init__()

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        return self.learn("vocabulary", lambda: self._fit("source", spaces=self.kind != "word"))

    @functools.cached_property
    def target_vocabulary(self) -> Vocabulary:
        return self.learn("target_vocabulary", lambda: self._fit("target", spaces=True, specials=[EOS]))

    @property
    def vocab_size(self) -> int:
        return self.vocabulary.size

    @property
    def longest(self) -> tuple[int, int]:
        return self.max_length, self.max_target_length

    def encode(self, records: Records, split: str) -> Encoded:
        sources = [self.encode_source(text) for text in read_texts(records, "source", split)]
        targets = [self.encode_target(text) for text in read_texts(records, "target", split)]
        ids_BS, lengths_B, _ = pad_rows(sources, self.max_length)
        padded = pad_rows(targets, self.max_target_length)
        n_cut = sum(
            len(source) > self.max_length or len(target) > self.max_target_length
            for source, target in zip(sources, targets, strict=True)
        )
        return Encoded.of(ids_BS, lengths_B, padded.rows_BT, padded.told_BT.astype(float), n_cut)

    def solve(self, batch: Batch) -> Array:
        # The compiler would take minutes to compute at once what follows from a constant.
        log_p_TV = lax.optimization_barrier(jnp.asarray(self._log_p_TV)[: batch.targets.shape[1]])
        return jnp.broadcast_to(log_p_TV, (*batch.targets.shape, self.n_outputs))

    def encode_source(self, text: str) -> np.ndarray:
        """The ids of a text to translate."""
        return self.vocabulary.encode(text)

    def texts(self, split: str) -> dict[str, list[str]]:
        """The sources of a split, and the references: the targets as they are, neither cut nor with unknown words."""
        records = self.records[split]
        return {"source": [r["source"] for r in records], "reference": [r["target"] for r in records]}

    def solve_written(self, split: str) -> list[str]:
        """What the baseline writes for the records of a split."""
        return self.texts(split)["source"]

    def _fit(self, field: str, *, spaces: bool, specials: Sequence[str] = ()) -> Vocabulary:
        texts = read_texts(self.records["train"], field, "train")
        return Vocabulary.fit(
            self.kind, texts, self.max_size, min_count=self.min_count, spaces=spaces, specials=specials
        )

    @functools.cached_property
    def _log_p_TV(self) -> np.ndarray:
        """ln p(y | t) in the training split, all of it, also where it is streamed."""
        V = self.n_outputs
        n_TV = np.zeros((self.max_target_length, V))
        for record in self.records["train"]:
            ids = self.encode_target(record["target"])[: self.max_target_length]
            n_TV[np.arange(len(ids)), ids] += 1
        p_V = (n_TV.sum(0) + 1 / V) / (n_TV.sum() + 1)
        return np.log((n_TV + V * p_V) / (n_TV.sum(1, keepdims=True) + V)).astype(np.float32)
