"""What the tasks over examples share whose answers are texts."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import ClassVar

import numpy as np

from seqlab.data.vocabulary import Vocabulary
from seqlab.tasks import objectives
from seqlab.tasks.over_examples import OverExamples
from seqlab.tasks.text_scores import require_tokenizer, score_texts
from seqlab.types import Array, Batch, Sums

EOS = "<eos>"


@dataclasses.dataclass(frozen=True)
class Writing(OverExamples):
    """Write a text, and say that this is the end: tokens of the target's vocabulary, and `<eos>`.

    BLEU compares the tokens of sacrebleu's `tokenize`: "zh", "ja-mecab" or "char" where words have no spaces between.

    A task has the `target_vocabulary`, the `texts` of a split, and what its baseline writes (`solve_written`).

    Metrics  loss (cross-entropy, nats), accuracy, sequence_accuracy; of texts that are written: bleu, chrf.
    Raises   UserError for a tokeniser that sacrebleu has not, or not here, and as `OverExamples`.
    """

    tokenize: str = "13a"
    written_baseline: ClassVar[str]
    target_per: ClassVar[str] = "sequence"

    def __post_init__(self) -> None:
        require_tokenizer(self.owner, self.tokenize)
        super().__post_init__()

    @property
    def target_vocabulary(self) -> Vocabulary:
        """The tokens that are written, with `<eos>` among the specials."""
        raise NotImplementedError

    @property
    def n_outputs(self) -> int:
        return self.target_vocabulary.size

    @property
    def eos(self) -> int:
        return self.target_vocabulary.special(EOS)

    def encode_target(self, text: str) -> np.ndarray:
        """The ids of a text and its end."""
        return np.append(self.target_vocabulary.encode(text), np.int32(self.eos))

    def decode_target(self, ids: Iterable[int]) -> str:
        """The text that ids of the target's vocabulary say."""
        return self.target_vocabulary.decode(ids).strip()

    def measure(self, outputs: Array, batch: Batch) -> Sums:
        return objectives.of_tokens(outputs, batch)

    def score_written(self, hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        """BLEU and chrF of texts that are written."""
        return score_texts(hypotheses, references, self.tokenize)
