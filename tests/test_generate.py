"""What `seqlab.generate` refuses before it reads a run, what it asks of a task, and how it writes what comes."""

from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf

from seqlab.data.vocabulary import Vocabulary
from seqlab.generate import Request, ask, check_options, write_as_it_comes
from seqlab.types import UserError

CONFIG = OmegaConf.load(Path(__file__).parents[1] / "conf/generate.yaml")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"n": 0}, "n is 0, but it must be a whole number"),
        ({"n": "two"}, "n is 'two'"),
        ({"n_tokens": 1.5}, "n_tokens is 1.5"),
        ({"draw_seed": "x"}, "draw_seed is 'x'"),
        ({"draw_seed": -1}, "draw_seed is -1"),
        ({"temperature": "hot"}, "temperature is 'hot'"),
        ({"repetition_penalty": 0}, "repetition_penalty is 0"),
        ({"length_penalty": 1}, "give beam_width too"),
        ({"beam_width": 0}, "beam_width is 0"),
        ({"beam_width": 2, "n": 3}, "n is 3, but a beam of width 2 finds 2"),
        ({"beam_width": 2, "temperature": 1}, "temperature is for drawing, but beam_width searches"),
        ({"beam_width": 2, "top_k": 3}, "top_k is for drawing"),
        ({"beam_width": 2, "top_p": 0.5}, "top_p is for drawing"),
        ({"beam_width": 2, "repetition_penalty": 1.1}, "repetition_penalty is for drawing"),
    ],
)
def test_options_that_mean_nothing_are_refused(given, told):
    with pytest.raises(UserError, match=told):
        check_options(OmegaConf.merge(CONFIG, given))


def test_options_that_mean_something_are_not_refused():
    for given in ({}, {"temperature": 0, "top_k": 3, "n": 5}, {"beam_width": 3, "n": 3, "length_penalty": 0}):
        check_options(OmegaConf.merge(CONFIG, given))


def test_a_language_model_is_asked_for_what_follows_a_prompt(build_task):
    task = build_task("char_lm")
    request = ask(task, "to be", None)
    assert task.vocabulary.decode(request.ids) == request.shown == "to be" and request.eos is None
    assert ask(task, None, None).shown == "\n"


def test_an_encoder_decoder_is_asked_for_what_answers_a_source(build_task):
    request = ask(build_task("addition"), None, "12+4")
    assert (request.ids.tolist(), request.shown, request.eos, request.temperature) == ([1, 2, 10, 4], "", 10, 0)
    assert request.decode([1, 6]) == "16"
    # Digits come as a number from the command line.
    assert ask(build_task("copy_sequence"), None, 2).ids.tolist() == [2]


@pytest.mark.parametrize(
    ("name", "prompt", "source", "told"),
    [
        ("char_lm", None, "ab", "LanguageModel goes on from a prompt and answers no source"),
        ("char_lm", "", None, "prompt is empty"),
        ("char_lm", True, None, "prompt is True, but it must be a text: quote it twice"),
        ("char_lm", 1.5, None, "prompt is 1.5, but it must be a text"),
        ("parity", "ab", None, "Parity has no vocabulary to write with"),
        ("addition", "ab", None, "Addition answers a source and goes on from no prompt"),
        ("addition", None, None, "Addition answers a source: write source"),
        ("addition", None, "", "source is empty"),
        ("addition", None, "1+2+3", "source is '1.2.3'; expected two numbers with a plus between them"),
        ("addition", None, "1-2", "source is '1-2'; expected two numbers"),
        ("copy_sequence", None, "1 x", "source is '1 x'; expected whole numbers between spaces"),
        ("copy_sequence", None, "1 99", "source is '1 99'; expected symbols from 0 to"),
    ],
)
def test_the_wrong_question_is_refused(build_task, name, prompt, source, told):
    with pytest.raises(UserError, match=told):
        ask(build_task(name), prompt, source)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_what_comes_is_written_whole_wherever_a_character_is_cut(capsys, size):
    """Bytes of a character in two stretches, and at the end one of which bytes stay missing."""
    vocabulary, data = Vocabulary("byte"), "né 日本 😀.".encode() + "é".encode()[:1]
    ids = np.frombuffer(data, np.uint8)
    stretches = ([ids[first : first + size]] for first in range(0, len(ids), size))
    write_as_it_comes(Request(ids[:0], "> ", vocabulary.decode, None, 0.8, 300), stretches)
    assert capsys.readouterr().out == "> " + data.decode(errors="replace") + "\n"
