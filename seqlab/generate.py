"""Write text with a trained language model: `python -m seqlab.generate run=DIR prompt="…" [n=4 …]`. See `--help`."""

import sys
from collections.abc import Iterator

import jax
import numpy as np
from omegaconf import DictConfig

from seqlab.cli import run_command
from seqlab.data.text import Vocabulary
from seqlab.decoding.generate import generate
from seqlab.decoding.sampling import Sampling
from seqlab.restore import restore
from seqlab.training.devices import start
from seqlab.types import UserError, require


def write(config: DictConfig) -> float:
    """Restore a run's best (or latest) parameters and write `n` texts of `n_tokens` tokens that follow the prompt.

    One text is written to the terminal as it is drawn, several one after the other.

    Raises   UserError for a directory that holds no run or no checkpoint, a run that is no language model, a replica
             that the run does not have, and what `seqlab.decoding.generate` refuses.
    """
    sampling = Sampling(config.temperature, config.top_k, config.top_p)
    sampling.check()
    require(config.n >= 1, f"n is {config.n}, but it must be at least 1")
    parts, _, state = restore(config, start(1))
    vocabulary = getattr(parts.task, "vocabulary", None)
    if not isinstance(vocabulary, Vocabulary):
        raise UserError(f"{type(parts.task).__name__} has no vocabulary to write with: train task=char_lm")
    require(
        0 <= config.replica < len(parts.seeds),
        f"replica is {config.replica}, but the run has {len(parts.seeds)}: expected 0 to {len(parts.seeds) - 1}",
    )
    params = jax.tree.map(lambda leaf: leaf[config.replica], state.eval_params)

    prompts = [vocabulary.encode(config.prompt)] * config.n
    stretches = generate(parts.model, params, prompts, config.n_tokens, sampling, config.draw_seed)
    if config.n == 1:
        _write_as_it_comes(vocabulary, prompts[0], stretches)
    else:
        for number, ids in enumerate(np.concatenate(list(stretches), 1), start=1):
            print(f"--- {number} of {config.n}\n{config.prompt}{vocabulary.decode(ids)}")
    return 0.0


def _write_as_it_comes(vocabulary: Vocabulary, prompt: np.ndarray, stretches: Iterator[np.ndarray]) -> None:
    ids, written = list(prompt), ""
    for stretch in stretches:
        ids.extend(stretch[0])
        text = vocabulary.decode(ids)
        sys.stdout.write(text[len(written) :])
        sys.stdout.flush()
        written = text
    sys.stdout.write("\n")


def main() -> None:
    """The command line."""
    run_command(write, config_name="generate", run_key="run")


if __name__ == "__main__":
    main()
