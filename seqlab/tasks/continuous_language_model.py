"""Language modelling on a text that goes on: the windows of a row follow each other."""

import dataclasses
import functools
from itertools import accumulate, pairwise
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seqlab.data.text import read_documents, split_by_position
from seqlab.tasks.checks import require_size
from seqlab.tasks.next_token import NextToken, shift
from seqlab.types import Array, Batch, require


class Windows(NamedTuple):
    """The windows of a piece of text in its order: where they start, their inputs, whether a document begins there."""

    starts_W: np.ndarray
    lengths_W: np.ndarray
    begins_W: np.ndarray


@dataclasses.dataclass(frozen=True)
class ContinuousLanguageModel(NextToken):
    """Say after each token of a text which one comes next, going on from window to window.

        inputs    x_s … x_{s+l−1}
        targets   x_{s+1} … x_{s+l}        l = `length`, or what is left of the document

    Each document (a file) is cut into windows that share their ends, so that each of its tokens but the first is a
    target once. Of the W windows of the training piece, row b of B reads those from ⌊W b / B⌋ to ⌊W (b + 1) / B⌋, one
    an update, round and round (`sample_at`), and the model goes on from the state that the row's last window left. A
    row begins anew, `fresh`, where a document does, where it comes round, and nowhere else unless with `fresh_every`
    after so many windows, at which the rows take turns: in a long text the initial state, from which all measuring and
    writing begins, is otherwise met in the first update alone. Every seed reads in the same order.

    Validation and test are cut in the same way, but into rows so long that there are `n_eval` of them, or somewhat
    more where documents end (None: one for each document). Each is read in one go from the initial state: measuring
    carries no state, and few rows forget little, but take many steps one after the other.

    Shapes   inputs_BT, lengths_B (None where all windows are full), targets_BT, fresh_B; logits_BTV. `sample` draws
             windows from anywhere, all fresh.
    Metrics  loss (cross-entropy, nats a token), perplexity e^loss; for char and byte bits_per_character.
    Raises   UserError as `Corpus`, for fresh_every < 1, and for more rows than windows.
    Source   Mikolov et al. 2010, Recurrent neural network based language model; batches of rows that go on: Zaremba,
             Sutskever, Vinyals 2014, arXiv:1409.2329, §4.
    """

    n_eval: int | None = 16
    fresh_every: int | None = None
    owner: ClassVar[str] = "continuous_language_model"
    length_fields: ClassVar[tuple[str, ...]] = ()
    _sizes: dict[str, list[int]] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fresh_every is not None:
            require_size(self.owner, "fresh_every", self.fresh_every, 1)
        documents = read_documents(self.path)
        ends, begin, sizes = list(accumulate(map(len, documents))), 0, {}
        for name, piece in zip(self.ids, split_by_position("".join(documents)), strict=True):
            cuts = [0, *(end - begin for end in ends if begin < end < begin + len(piece)), len(piece)]
            sizes[name] = [len(self.vocabulary.encode(piece[a:b])) for a, b in pairwise(cuts)]
            begin += len(piece)
        object.__setattr__(self, "_sizes", sizes)

    def sample_at(self, step: Array, batch_size: int) -> Batch:
        windows = self._training_windows
        W = len(windows.starts_W)
        require(
            batch_size <= W,
            f"{self.owner} is to be read in {batch_size} rows, but the training piece of {self.path} has {W} windows "
            f"of length {self.length}; expected at most one row a window.",
        )
        cuts = W * np.arange(batch_size + 1) // batch_size
        place_B = step % np.diff(cuts)
        chosen_B = jnp.asarray(cuts[:-1]) + place_B
        fresh_B = (place_B == 0) | jnp.asarray(windows.begins_W)[chosen_B]
        if self.fresh_every is not None:
            turns_B = self.fresh_every * np.arange(batch_size) // batch_size
            fresh_B |= (place_B + turns_B) % self.fresh_every == 0
        return dataclasses.replace(self._read("train", windows, chosen_B), fresh=fresh_B)

    def sample(self, key: Array, batch_size: int) -> Batch:
        chosen_B = jax.random.randint(key, (batch_size,), 0, len(self._training_windows.starts_W))
        batch = self._read("train", self._training_windows, chosen_B)
        return dataclasses.replace(batch, fresh=jnp.ones(batch_size, bool))

    def evaluation_sets(self) -> dict[str, Batch]:
        return {name: self._read_rows(name) for name in ("validation", "test")}

    @functools.cached_property
    def _training_windows(self) -> Windows:
        return self._cut("train", self.length)

    def _cut(self, name: str, length: int) -> Windows:
        sizes = self._sizes[name]
        begins = accumulate(sizes[:-1], initial=0)
        offsets = [np.arange(0, size - 1, length) for size in sizes]
        return Windows(
            np.concatenate([begin + o_W for begin, o_W in zip(begins, offsets, strict=True)]),
            np.concatenate([np.minimum(size - 1 - o_W, length) for size, o_W in zip(sizes, offsets, strict=True)]),
            np.concatenate([o_W == 0 for o_W in offsets]),
        )

    def _read_rows(self, name: str) -> Batch:
        n_targets = sum(max(size - 1, 0) for size in self._sizes[name])
        windows = self._cut(name, n_targets if self.n_eval is None else -(-n_targets // self.n_eval))
        return self._read(name, windows, jnp.arange(len(windows.starts_W)))

    def _read(self, name: str, windows: Windows, chosen_B: Array) -> Batch:
        starts_W, lengths_W, _ = windows
        width = int(lengths_W.max())
        ids_N = jnp.asarray(np.pad(self.ids[name], (0, width)))
        windows_BT = ids_N[jnp.asarray(starts_W, jnp.int32)[chosen_B, None] + jnp.arange(width + 1)]
        all_full = (lengths_W == width).all()
        return shift(windows_BT.astype(jnp.int32), None if all_full else jnp.asarray(lengths_W, jnp.int32)[chosen_B])
