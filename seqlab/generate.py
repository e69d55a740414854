"""Write with a trained run: `python -m seqlab.generate run=DIR prompt="…" [n=4 …]`, or `source="…"`. See `--help`."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import numpy as np
from omegaconf import DictConfig, ListConfig

from seqlab.cli import run_command
from seqlab.data.picture_files import is_picture
from seqlab.data.vocabulary import Vocabulary
from seqlab.decoding.beam import search
from seqlab.decoding.generate import generate
from seqlab.decoding.prompts import check_count, n_steps
from seqlab.decoding.sampling import Sampling
from seqlab.restore import restore
from seqlab.training.devices import start
from seqlab.types import Params, UserError, require

N_TOKENS = 300
LENGTH_PENALTY = 0.6  # Vaswani et al. 2017, arXiv:1706.03762, §6.1


class Request(NamedTuple):
    """What a model begins with, and what it writes means.

    `prompt` is ids or a picture. `shown` is written ahead of its text, and above it the `title` of one of several;
    `temperature` and `n_tokens` are what is taken where none is given.
    """

    prompt: np.ndarray
    shown: str
    decode: Callable[[Iterable[int]], str]
    eos: int | None
    temperature: float
    n_tokens: int
    title: str = ""


def write(config: DictConfig) -> float:
    """Restore a run's best (or latest) parameters and write `n` texts after the prompt or from the source.

    Of several pictures each is answered. One text that is drawn is written to the terminal as it comes, several one
    after the other.

    Raises   UserError for a directory that holds no run or no checkpoint, a run that writes no text, a replica that the
             run does not have, options that do not go together, and what `seqlab.decoding` refuses.
    """
    check_options(config)
    parts, _, state = restore(config, start(config.trainer.cpu_devices))
    n_replicas = len(parts.seeds)
    require(
        config.replica in range(n_replicas),
        f"replica is {config.replica}, but the run has {n_replicas}: expected 0 to {n_replicas - 1}",
    )
    # On the host: whoever writes says which devices need them.
    params = jax.device_get(jax.tree.map(lambda leaf: leaf[config.replica], state.eval_params))
    for request in ask(parts.task, config.prompt, config.source):
        if config.beam_width is None:
            _draw(config, parts.model, params, request)
        else:
            _search(config, parts.model, params, request)
    return 0.0


def check_options(config: DictConfig) -> None:
    """Refuse, before a run is read, counts that are none and options that would do nothing.

    Raises   UserError.
    """
    check_count("n", config.n)
    seed = config.draw_seed
    is_seed = isinstance(seed, int) and not isinstance(seed, bool) and 0 <= seed < 2**32
    require(is_seed, f"draw_seed is {seed!r}, but it must be a whole number from 0, less than 2³²")
    if config.n_tokens is not None:
        check_count("n_tokens", config.n_tokens)
    if config.beam_width is None:
        require(config.length_penalty is None, "length_penalty weighs what a beam finds: give beam_width too")
        _sampling(config, 1.0).check()
        return
    check_count("beam_width", config.beam_width)
    require(
        config.n <= config.beam_width,
        f"n is {config.n}, but a beam of width {config.beam_width} finds {config.beam_width}: raise beam_width",
    )
    for name, unused in (("temperature", None), ("top_k", None), ("top_p", None), ("repetition_penalty", 1)):
        require(config[name] == unused, f"{name} is for drawing, but beam_width searches: leave one of them out")


def ask(task: Any, prompt: Any, source: Any) -> list[Request]:
    """Encode the prompt of a language model, or the source of an encoder-decoder: a text, or the files of pictures.

    Raises   UserError for a task that writes no text, for the wrong one of the two, for an empty one, for a picture
             where a text is read and the other way round, and for a file that is not there or is no picture.
    """
    if hasattr(task, "encode_picture"):
        return _ask_about_pictures(task, prompt, source)
    return [_ask_after_text(task, prompt, source)]


def _ask_about_pictures(task: Any, prompt: Any, source: Any) -> list[Request]:
    name = type(task).__name__
    require(prompt is None, f"{name} answers a picture and goes on from no prompt: write source=FILE.png instead")
    require(source is not None, f"{name} answers a picture: write source=FILE.png")
    files = _find_pictures(name, source)
    pictures = [task.encode_picture(file) for file in files]
    titles = map(str, files) if len(files) > 1 else [""]
    told = task.decode_target, task.eos, 0.0, task.longest[1]
    return [Request(picture, "", *told, title) for picture, title in zip(pictures, titles, strict=True)]


def _find_pictures(name: str, source: Any) -> list[Path]:
    """The files that a source names: one, several, or those in a folder."""
    files: list[Path] = []
    for given in source if isinstance(source, list | ListConfig) else [source]:
        require(
            os.path.exists(str(given)),
            f"There is no file {str(given)!r}: {name} answers a picture, write source=FILE.png",
        )
        path = Path(str(given))
        inside = sorted(file for file in path.iterdir() if is_picture(file)) if path.is_dir() else [path]
        require(bool(inside), f"The folder {path} holds no picture")
        files += inside
    require(bool(files), f"source is empty, but {name} answers a picture: write source=FILE.png")
    return files


def _ask_after_text(task: Any, prompt: Any, source: Any) -> Request:
    name = type(task).__name__
    vocabulary = getattr(task, "vocabulary", None)
    if not hasattr(task, "encode_source") and not isinstance(vocabulary, Vocabulary):
        raise UserError(f"{name} has no vocabulary to write with: train task=char_lm")
    for given in (prompt, source):
        picture = isinstance(given, str) and is_picture(Path(given)) and os.path.isfile(given)
        require(not picture, f"{given} is a picture, but {name} reads text: train task=captioning for pictures")
    if hasattr(task, "encode_source"):
        require(prompt is None, f"{name} answers a source and goes on from no prompt: write source=... instead")
        require(source is not None, f"{name} answers a source: write source=...")
        text = _text("source", source)
        _tell_unknown(vocabulary, text)
        ids, trained = task.encode_source(text), jax.eval_shape(lambda: task.sample(jax.random.key(0), 1))
        if (n := len(ids)) > (most := trained.inputs.shape[1]):
            print(f"The source has {n} tokens, and those of training have {most} at most.", file=sys.stderr)
        return Request(ids, "", task.decode_target, task.eos, 0.0, trained.targets.shape[1])
    assert isinstance(vocabulary, Vocabulary)
    goes_on = task.vocab_size == task.n_outputs == vocabulary.size
    require(goes_on, f"{name} does not say which token comes next alone: train task=char_lm")
    require(source is None, f"{name} goes on from a prompt and answers no source: write prompt=... instead")
    text = "\n" if prompt is None else _text("prompt", prompt)
    _tell_unknown(vocabulary, text)
    return Request(vocabulary.encode(text), text, vocabulary.decode, None, 0.8, N_TOKENS)


def _tell_unknown(vocabulary: Vocabulary | None, text: str) -> None:
    if vocabulary and (unknown := vocabulary.unknown(text)):
        print(f"The run's text has no {' '.join(map(repr, unknown))}: read as <unk>.", file=sys.stderr)


def _text(name: str, value: Any) -> str:
    """Take whole numbers too, which the command line makes of digits."""
    is_text = isinstance(value, str | int) and not isinstance(value, bool)
    require(is_text, f"{name} is {value!r}, but it must be a text: quote it twice, {name}='\"...\"'")
    require(value != "", f"{name} is empty, but it must hold a token at least")
    return str(value)


def _n_tokens(config: DictConfig, model: nn.Module, request: Request) -> int:
    room = model.room(n_steps(request.prompt)) if hasattr(model, "room") else None
    most = request.n_tokens if room is None else max(1, min(request.n_tokens, room))
    return most if config.n_tokens is None else config.n_tokens


def _sampling(config: DictConfig, temperature: float) -> Sampling:
    given = temperature if config.temperature is None else config.temperature
    return Sampling(given, config.top_k, config.top_p, config.repetition_penalty)


def _draw(config: DictConfig, model: nn.Module, params: Params, request: Request) -> None:
    prompts, n_tokens = [request.prompt] * config.n, _n_tokens(config, model, request)
    sampling = _sampling(config, request.temperature)
    same = config.n > 1 and sampling.temperature == 0
    require(not same, f"n is {config.n}, but at temperature 0 all texts are the same: give temperature or beam_width")
    seen = request.eos is None
    stretches = generate(model, params, prompts, n_tokens, sampling, config.draw_seed, request.eos, seen)
    if config.n == 1:
        sys.stdout.write(_heading(request))
        write_as_it_comes(request, stretches)
        return
    for number, pieces in enumerate(zip(*stretches, strict=True), start=1):
        heading = _heading(request, f"{number} of {config.n}")
        print(f"{heading}{request.shown}{request.decode(np.concatenate(pieces))}")


def _search(config: DictConfig, model: nn.Module, params: Params, request: Request) -> None:
    alpha = LENGTH_PENALTY if config.length_penalty is None else config.length_penalty
    n_tokens = _n_tokens(config, model, request)
    found = search(model, params, [request.prompt], n_tokens, config.beam_width, alpha, request.eos)
    for number, (ids, length, score) in enumerate(zip(*(rows[0, : config.n] for rows in found), strict=True), start=1):
        heading = _heading(request, f"{number} of {config.n}, score {score:.4f}" if config.n > 1 else "")
        print(f"{heading}{request.shown}{request.decode(ids[:length])}")


def _heading(request: Request, which: str = "") -> str:
    told = ", ".join(part for part in (request.title, which) if part)
    return f"--- {told}\n" if told else ""


def write_as_it_comes(request: Request, stretches: Iterator[list[np.ndarray]]) -> None:
    """Write the one text of `stretches` to the terminal, a character once all of it has come."""
    ids: list[int] = []
    n_written = 0
    for (stretch,) in stretches:
        ids.extend(stretch)
        text = request.shown + request.decode(ids)
        # A character of which bytes are missing waits for them.
        n_whole = max(n_written, len(text.rstrip("\N{REPLACEMENT CHARACTER}")))
        sys.stdout.write(text[n_written:n_whole])
        sys.stdout.flush()
        n_written = n_whole
    sys.stdout.write(text[n_written:] + "\n")


def main() -> None:
    """The command line."""
    run_command(write, config_name="generate", run_key="run")


if __name__ == "__main__":
    main()
