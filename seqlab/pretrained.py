"""The network of a trained run as the inputs of the next model."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from hydra.utils import instantiate

from seqlab.data.vocabulary import Vocabulary
from seqlab.models.bilm import BiLM, reverse_rows
from seqlab.models.tagger import Tagger
from seqlab.nn.matrix import as_matrix
from seqlab.nn.scalar_mix import ScalarMix
from seqlab.training.checkpoint import Checkpoints
from seqlab.training.run_directory import read_config
from seqlab.types import Array, Params, require

HEAD = ("head", "bias")


class PretrainedInputs(nn.Module):
    """What a trained network makes of the ids, its head left out.

        x_t = y_t                  the output of a Transformer
        x_t = γ Σ_l s_l h_l,t      a scalar mix, learned anew, of the inputs and the layers of a `Stack`
        h_l,t = [h→_l,t, h←_l,t]   of a `BiLM`, whose layers are those of both directions

    and 0 past the length; then W x_t where `features` asks for another width than the network's. The inputs take part
    in the mix only where they are as wide as the layers. The network starts with the values that `start` gives.
    Frozen, it keeps them: it runs without dropout, and neither gradient nor weight decay reaches it.

    Shapes   ids_BT, lengths_B -> x_BTD, and with a state to go on from the state after it too;
             a step: state, ids_B -> state, x_BD.
    Raises   UserError for stepping with a network that reads from both ends.
    Source   Peters et al. 2018, arXiv:1802.05365, §3.2, eq. 1.
    Differs  Peters et al. set what comes out beside vectors of the task's own; here it is all that the encoder reads.
    """

    network: Callable[[], Tagger | BiLM]
    start: Callable[[], Params]
    vocab_size: int
    vocabulary: Vocabulary | None = None
    features: int | None = None
    frozen: bool = True

    def setup(self) -> None:
        self.params = self.param("frozen" if self.frozen else "network", lambda _: self.start())
        self.mix = ScalarMix()
        self.W = nn.Dense(self.features or 1, use_bias=False)

    def __call__(
        self, ids_BT: Array, lengths_B: Array | None = None, *, state: Any = None, train: bool
    ) -> Array | tuple[Array, Any]:
        train = train and not self.frozen
        if isinstance(self.network(), BiLM):
            both, sown = self._run("encode", ids_BT, lengths_B, train=train)
            layers = [both]
            if sown:
                back = (reverse_rows(h_BTF, lengths_B) for h_BTF in sown["backward"]["y"])
                layers = list(zip(sown["forward"]["y"], back, strict=True))
            return self._combine([jnp.concatenate(pair, -1) for pair in layers])
        encoding, sown = self._run("encode", ids_BT, lengths_B, state=state, train=train)
        x_BTD = self._combine(sown["encoder"]["y"] if sown else [encoding.y_BTF])
        return x_BTD if state is None else (x_BTD, encoding.state)

    def init_state(self, batch_size: int) -> Any:
        name = type(self.network()).__name__
        require(
            hasattr(self.network(), "init_state"), f"a {name} reads from both ends: it cannot take one step at a time"
        )
        return self._run("init_state", batch_size)[0]

    def step(self, state: Any, ids_B: Array) -> tuple[Any, Array]:
        (state, y_BF), sown = self._run("encode_step", state, ids_B)
        return state, self._combine(sown["encoder"]["y"] if sown else [y_BF])

    def room(self) -> int | None:
        """The most steps that a state has room for, None for no limit."""
        network = self.network()
        return network.room(0) if isinstance(network, Tagger) else None

    def _run(self, method: str, *arguments: Any, **options: Any) -> tuple[Any, dict[str, Any]]:
        """What a method of the network returns, and what its layers have sown."""
        params = jax.lax.stop_gradient(self.params) if self.frozen else self.params
        rngs = {"dropout": self.make_rng("dropout")} if options.get("train") else {}
        told, sown = self.network().apply(
            {"params": params}, *arguments, method=method, rngs=rngs, mutable="layers", **options
        )
        return told, sown.get("layers", {})

    def _combine(self, layers: Sequence[Array]) -> Array:
        D = layers[-1].shape[-1]
        mixed = [h for h in layers if h.shape[-1] == D]
        x = self.mix(mixed) if len(mixed) > 1 else mixed[0]
        return x if self.features in (None, D) else as_matrix(self.W, x)


def pretrained(
    run: str, vocab_size: int, features: int | None = None, frozen: bool = True, replica: int = 0
) -> PretrainedInputs:
    """Make inputs of the best parameters of a run, those of one of its replicas.

    Every replica of the new run starts with them. What the new run learns is in its own checkpoints, the network
    included; but how the network is built is read here each time, so the old run must stay where it is.

    Raises   UserError for a directory that holds no run or no checkpoint, a run of another model than a `Tagger` or a
             `BiLM` over ids, a task with more ids than the run knows, features < 1, and a replica that the run does not
             have.
    """
    directory = Path(run)
    node = read_config(directory)["model"]
    model = instantiate(node)
    require(
        isinstance(model, Tagger | BiLM) and hasattr(model.inputs, "vocab_size"),
        f"model.inputs.run={run}: the run is of a {type(model).__name__} over {type(model.inputs).__name__}; expected "
        "a Tagger or a BiLM over ids, as of task=char_lm, masked_lm or bidirectional_lm.",
    )
    require(features is None or features >= 1, f"model.inputs.features={features}: expected at least 1, or null.")
    n_known = model.inputs.vocab_size
    require(
        vocab_size is not None and vocab_size <= n_known,
        f"model.inputs.run={run}: the run knows {n_known} ids, but the task has {vocab_size}; expected the text that "
        "the run was trained on.",
    )
    checkpoints = Checkpoints(directory / "checkpoints")
    params_R = checkpoints.restore_params("best")
    checkpoints.close()
    n_replicas = len(jax.tree.leaves(params_R)[0])
    require(
        replica in range(n_replicas),
        f"model.inputs.replica={replica}: the run has {n_replicas}; expected 0 to {n_replicas - 1}.",
    )
    params = {name: part for name, part in params_R.items() if name not in HEAD}
    told = directory / "vocabulary.json"
    return PretrainedInputs(
        network=lambda: model.clone(tied=False) if isinstance(model, Tagger) else model,
        start=lambda: jax.tree.map(lambda leaf: jnp.asarray(leaf[replica]), params),
        vocab_size=vocab_size,
        vocabulary=Vocabulary.load(told) if told.exists() else None,
        features=features,
        frozen=frozen,
    )
