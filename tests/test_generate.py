"""What `seqlab.generate` refuses before it reads a run, what it asks of a task, and how it writes what comes."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from omegaconf import OmegaConf
from PIL import Image

from seqlab.data.sources.image_folder import ImageFolder
from seqlab.data.vocabulary import Vocabulary
from seqlab.evaluation.written import write_texts
from seqlab.generate import Request, ask, check_options, write, write_as_it_comes
from seqlab.restore import open_run
from seqlab.tasks.captioning import Captioning
from seqlab.types import UserError

CONFIG = OmegaConf.load(Path(__file__).parents[1] / "conf/generate.yaml")
SMALL = ("model.inputs.features=5", "model.inputs.n_blocks=2", "model.decoder.features=7", "model.target_features=5")


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
    (request,) = ask(task, "to be", None)
    assert task.vocabulary.decode(request.prompt) == request.shown == "to be" and request.eos is None
    assert ask(task, None, None)[0].shown == "\n"


def test_an_encoder_decoder_is_asked_for_what_answers_a_source(build_task):
    (request,) = ask(build_task("addition"), None, "12+4")
    assert (request.prompt.tolist(), request.shown, request.eos, request.temperature) == ([1, 2, 10, 4], "", 10, 0)
    assert request.decode([1, 6]) == "16"
    # Digits come as a number from the command line.
    assert ask(build_task("copy_sequence"), None, 2)[0].prompt.tolist() == [2]


def test_a_source_unlike_those_of_training_is_answered_and_told(build_task, capsys):
    task = dataclasses.replace(build_task("translation"), kind="word")
    most = task.sample(jax.random.key(0), 1).inputs.shape[1]
    word = task.texts("train")["source"][0].split()[0]
    ask(task, None, " ".join([word] * most))
    assert capsys.readouterr().err == ""
    (request,) = ask(task, None, " ".join([word] * most + ["xyzzy"]))
    assert len(request.prompt) == most + 1
    assert capsys.readouterr().err.splitlines() == [
        "The run's text has no 'xyzzy': read as <unk>.",
        f"The source has {most + 1} tokens, and those of training have {most} at most.",
    ]


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
        ("captioning", "a red circle", None, "Captioning answers a picture and goes on from no prompt"),
        ("captioning", None, None, "Captioning answers a picture: write source=FILE.png"),
        ("captioning", None, "a red circle", "There is no file 'a red circle': Captioning answers a picture"),
        ("captioning", None, [], "source is empty, but Captioning answers a picture"),
    ],
)
def test_the_wrong_question_is_refused(build_task, name, prompt, source, told):
    with pytest.raises(UserError, match=told):
        ask(build_task(name), prompt, source)


@pytest.fixture(scope="module")
def pictures(build_task, tmp_path_factory):
    """The pictures of a few test records as files, one of them grey, in a folder with what is none."""
    folder = tmp_path_factory.mktemp("pictures")
    for i, record in enumerate(build_task("captioning").records["test"][:3]):
        Image.fromarray(record["image"]).save(folder / f"{i}.png")
    (folder / "notes.txt").write_text("none")
    return folder


def test_a_picture_in_a_file_is_read_as_the_source_reads_its_own(build_task, pictures):
    task = build_task("captioning")
    requests = ask(task, None, str(pictures))
    assert [request.title for request in requests] == [str(pictures / f"{i}.png") for i in range(3)]
    for request, record in zip(requests, task.records["test"], strict=False):
        assert request.prompt.dtype == np.uint8
        np.testing.assert_array_equal(request.prompt, record["image"])
    (one,) = ask(task, None, str(pictures / "1.png"))
    assert one.title == "" and np.array_equal(one.prompt, requests[1].prompt)
    two = ask(task, None, OmegaConf.create([str(pictures / "2.png"), str(pictures / "0.png")]))
    assert all(np.array_equal(a.prompt, b.prompt) for a, b in zip(two, [requests[2], requests[0]], strict=True))


@dataclasses.dataclass
class Given:
    """Records that are there, and as an image folder says it the size of pictures."""

    images: Any
    size: Any = None

    def records(self):
        rows = [{"image": image, "text": "what it is"} for image in self.images]
        return {"train": rows, "validation": rows, "test": rows}


@pytest.mark.parametrize("channels", [1, 3])
def test_a_file_is_resized_where_the_source_resizes_as_the_image_folder_does(pictures, tmp_path, channels):
    (tmp_path / "class").mkdir()
    shutil.copy(pictures / "0.png", tmp_path / "class")
    (expected,) = ImageFolder(str(tmp_path), size=[11, 13], channels=channels).read(str(tmp_path))[:]
    images = np.zeros((5, 11, 13, channels), np.uint8)
    (request,) = ask(Captioning(Given(images, [11, 13])), None, str(pictures / "0.png"))
    np.testing.assert_array_equal(request.prompt, expected["image"])
    with pytest.raises(
        UserError, match=r"0\.png is 32 × 32, but the pictures of this run's data are 11 × 13: resize it"
    ):
        ask(Captioning(Given(images)), None, str(pictures / "0.png"))


def test_a_file_that_says_no_such_picture_is_refused(build_task, pictures, tmp_path):
    data = (pictures / "0.png").read_bytes()
    for n_bytes in (0, 7, 20, 40, len(data) // 2, len(data) - 99):
        (tmp_path / "cut.png").write_bytes(data[:n_bytes])
        with pytest.raises(UserError, match=r"cut\.png cannot be read: it is no picture, or is damaged"):
            ask(build_task("captioning"), None, str(tmp_path / "cut.png"))
    with pytest.raises(UserError, match=r"notes\.txt cannot be read: it is no picture"):
        ask(build_task("captioning"), None, str(pictures / "notes.txt"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"The folder .*empty holds no picture"):
        ask(build_task("captioning"), None, str(tmp_path / "empty"))
    for images in (np.zeros((5, 32, 32, 3), np.float32), np.zeros((5, 32, 32, 5), np.uint8)):
        with pytest.raises(UserError, match="holds bytes of 1 or 3 channels, but the pictures of this run's data are"):
            ask(Captioning(Given(images)), None, str(pictures / "0.png"))


def test_a_picture_given_to_a_task_that_reads_text_is_refused(build_task, pictures):
    file = str(pictures / "0.png")
    for name, given in (("char_lm", (file, None)), ("addition", (None, file))):
        with pytest.raises(UserError, match=r"0\.png is a picture, but .* reads text: train task=captioning"):
            ask(build_task(name), *given)


@pytest.fixture(scope="module")
def captions(compose, keep_run):
    return keep_run(compose("task=captioning", *SMALL))


def write_about(captions, capsys, source, **options):
    stored = OmegaConf.load(captions / "config.yaml")
    write(OmegaConf.merge(stored, CONFIG, {"run": str(captions), "source": source, "n_tokens": 5, **options}))
    return capsys.readouterr().out


@pytest.mark.slow
def test_captions_are_those_of_the_evaluation_whatever_is_asked_beside(captions, pictures, capsys):
    parts, _, state = open_run(captions)
    params = jax.tree.map(lambda leaf: leaf[0], jax.device_get(state.eval_params))
    expected = write_texts(parts.task, parts.model, params, parts.sets["test"], 7, 5)
    files = [str(pictures / f"{i}.png") for i in range(3)]
    told = "".join(f"--- {file}\n{text}\n" for file, text in zip(files, expected, strict=False))
    assert write_about(captions, capsys, str(pictures)) == told
    # The penalty counts what is written alone, and a beam of one without a length penalty is greedy.
    assert write_about(captions, capsys, files, beam_width=1, length_penalty=0) == told
    drawn = write_about(captions, capsys, files[:2], n=2, temperature=1.0, repetition_penalty=1.5)
    titles = [line for line in drawn.splitlines() if line.startswith("---")]
    assert titles == [f"--- {file}, {k} of 2" for file in files[:2] for k in (1, 2)]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_what_comes_is_written_whole_wherever_a_character_is_cut(capsys, size):
    """Bytes of a character in two stretches, and at the end one of which bytes stay missing."""
    vocabulary, data = Vocabulary("byte"), "né 日本 😀.".encode() + "é".encode()[:1]
    ids = np.frombuffer(data, np.uint8)
    stretches = ([ids[first : first + size]] for first in range(0, len(ids), size))
    write_as_it_comes(Request(ids[:0], "> ", vocabulary.decode, None, 0.8, 300), stretches)
    assert capsys.readouterr().out == "> " + data.decode(errors="replace") + "\n"
