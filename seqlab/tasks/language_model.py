"""Language modelling: the next token of a text."""

import dataclasses
from typing import ClassVar

from seqlab.tasks.next_token import NextToken, shift
from seqlab.types import Array, Batch


@dataclasses.dataclass(frozen=True)
class LanguageModel(NextToken):
    """Say after each token of a text which one comes next.

        window    x_0 … x_L,  L + 1 tokens in a row of the text, L = `length`
        inputs    x_0 … x_{L−1}
        targets   x_1 … x_L
        loss      −(1/L) Σ_t ln p(x_t | x_0 … x_{t−1})

    Windows are those of `Corpus` and share their ends, so that each token but the first of the validation or test
    piece is predicted once, from the tokens of its window alone.

    Shapes   inputs_BT, lengths_B (None where all windows are full), targets_BT; logits_BTV.
    Metrics  loss (cross-entropy, nats a token), perplexity e^loss; for char and byte bits_per_character.
    Raises   UserError as `Corpus`.
    Source   Bengio, Ducharme, Vincent, Jauvin 2003, A Neural Probabilistic Language Model, §2.
    """

    owner: ClassVar[str] = "language_model"

    def sample(self, key: Array, batch_size: int) -> Batch:
        return shift(self.draw_windows(key, batch_size), None)

    def evaluation_sets(self) -> dict[str, Batch]:
        return {name: shift(*self.cut_windows(name)) for name in ("validation", "test")}
