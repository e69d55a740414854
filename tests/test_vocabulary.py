"""Laws of vocabularies and classes: what they are fitted on, that they come back, and what they refuse."""

import random

import numpy as np
import pytest

from seqlab.data.classes import Classes
from seqlab.data.learned import keep_learned
from seqlab.data.vocabulary import KINDS, TOKENS, Vocabulary
from seqlab.tasks.language_model import LanguageModel
from seqlab.tasks.reverse import Reverse
from seqlab.types import UserError

TRICKY = "naïve — Straße\tЖ 日本語 👩‍🚀 e\u0301 \u202eשלום\u2028\ufeffend  two\n\n 'don't' _a_b 3.14 \r\x00 <unk>\n"
WORDS = ["the", "fall", "of", "lower", "lowest", "slow", "slowest", "and", "newer", "newest"]


def fit(kind, texts, **options):
    return Vocabulary.fit(kind, texts, 307 if kind == "subword" else None, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_decoding_what_was_encoded_gives_it_back(kind):
    vocabulary = fit(kind, TRICKY)
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


@pytest.mark.parametrize("kind", (*KINDS, TOKENS))
def test_a_saved_vocabulary_is_the_same(tmp_path, kind):
    text = TRICKY.split() if kind == TOKENS else TRICKY
    fitted = fit(kind, [text], lower=True, spaces=kind != "word", specials=("<bos>", "<eos>"))
    fitted.save(tmp_path / "vocabulary.json")
    loaded = Vocabulary.load(tmp_path / "vocabulary.json")
    assert loaded == fitted and loaded.size == fitted.size
    assert loaded.encode(text).tolist() == fitted.encode(text).tolist()
    assert loaded.special("<eos>") == loaded.size - 1


def test_a_vocabulary_saved_before_there_were_other_fields_is_read(tmp_path):
    (tmp_path / "vocabulary.json").write_text('{"kind": "word", "tokens": ["<unk>", "a"]}')
    assert Vocabulary.load(tmp_path / "vocabulary.json") == Vocabulary("word", ("<unk>", "a"))


def test_a_vocabulary_is_kept_once_and_no_other_taken_for_it(tmp_path, text_path):
    keep_learned(LanguageModel(text_path), tmp_path)
    keep_learned(LanguageModel(text_path, length=7), tmp_path)
    with pytest.raises(UserError, match=r"another vocabulary than .*vocabulary\.json"):
        keep_learned(LanguageModel(text_path, kind="byte"), tmp_path)
    assert Vocabulary.load(tmp_path / "vocabulary.json") == LanguageModel(text_path).vocabulary
    assert [path.name for path in tmp_path.iterdir()] == ["vocabulary.json"]
    keep_learned(Reverse(), tmp_path / "nowhere")


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
        (
            lambda: Vocabulary.fit("chars", "a"),
            r"kind 'chars'; expected one of char, byte, word, subword \(nearest: char\)",
        ),
        (lambda: Vocabulary("bite"), "nearest: byte"),
        (lambda: Vocabulary.fit("byte", "a", 5), "256 ids; max_size is 5, expected none"),
        (lambda: Vocabulary.fit("word", "a", 1), "max_size 1; expected at least 2, <unk> and a token"),
        (lambda: Vocabulary.fit("word", "a", 3, specials=("<bos>", "<eos>")), "max_size 3; expected at least 4"),
        (lambda: Vocabulary.fit("subword", "a"), "subwords needs max_size, at least 256"),
        (lambda: Vocabulary.fit("subword", "a", 255), "max_size 255; expected at least 256, the bytes"),
        (lambda: Vocabulary.fit("word", "a", min_count=0), "min_count 0; expected at least 1"),
        (lambda: Vocabulary("char", spaces=False), "kind 'char' keeps spaces; spaces=false is for words"),
        (lambda: Vocabulary("byte").special("<eos>"), r"no special '<eos>'; it has \[\]"),
    ],
)
def test_vocabularies_that_there_are_not_are_refused(fit, message):
    with pytest.raises(UserError, match=message):
        fit()


def test_a_text_is_fitted_as_the_texts_that_it_is_made_of():
    words = random.Random(7).choices(WORDS, k=211)
    texts = [" ".join(words[i : i + 11]) for i in range(0, 211, 11)]
    for kind in KINDS:
        assert fit(kind, texts) == fit(kind, iter(texts)) == fit(kind, tuple(texts))
        assert fit(kind, texts[:1]) == fit(kind, texts[0])


def test_words_in_lower_case_without_their_spaces():
    words = Vocabulary.fit("word", ["The cat\n(the dog)", "A CAT", ""], lower=True, spaces=False)
    assert words.tokens == ("<unk>", "cat", "the", "(", ")", "a", "dog")
    assert words.encode("THE\tbird(dog").tolist() == [2, 0, 3, 6]
    assert words.decode([2, 1, 3]) == "the cat ("
    assert words.unknown("A bird, a Bird") == ["bird", ","]


def test_rare_tokens_are_unknown_and_the_greatest_size_counts_all():
    texts = ["a a a b b c", "d d"]
    words = Vocabulary.fit("word", texts, min_count=2, spaces=False)
    assert words.tokens == ("<unk>", "a", "b", "d")
    short = Vocabulary.fit("word", texts, 5, spaces=False, specials=("<bos>", "<eos>"))
    assert short.tokens == ("<unk>", "a", "b") and short.size == 5
    assert [short.special(name) for name in short.specials] == [3, 4]
    assert short.encode("d b a").tolist() == [0, 2, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_holds_a_special_and_decoding_leaves_it_out(kind):
    vocabulary = fit(kind, ["<eos> ab <eos>", "ab"], specials=("<eos>",))
    ids = vocabulary.encode("ab <eos>")
    assert vocabulary.special("<eos>") == vocabulary.size - 1
    assert vocabulary.special("<eos>") not in ids
    assert vocabulary.decode([*ids, vocabulary.special("<eos>")]) == "ab <eos>"
    starts = vocabulary.starts_character()
    assert starts is None or (len(starts) == vocabulary.size and not starts[-1])


def test_given_tokens_are_taken_as_they_are():
    vocabulary = Vocabulary.fit(TOKENS, [["New York", "is", "Is"], ["<eos>", "is"]], specials=("<eos>",))
    assert vocabulary.tokens == ("<unk>", "is", "Is", "New York")
    assert vocabulary.encode(["is", "<eos>", "New York", "York"]).tolist() == [1, 0, 3, 0]
    assert vocabulary.encode([]).tolist() == []
    assert vocabulary.decode([1, 3, 4]) == "is New York"
    assert Vocabulary.fit(TOKENS, [["Is", "is"]], lower=True).encode(["IS"]).tolist() == [1]


def test_subwords_join_what_stands_together_often_and_know_every_byte():
    texts = [" ".join(random.Random(seed).choices(WORDS, k=13)) for seed in range(17)]
    vocabulary = Vocabulary.fit("subword", texts, 281, specials=("<eos>",))
    assert vocabulary.size == 281
    assert len(vocabulary.encode(" the lowest")) == 2
    assert vocabulary.tokenise(" the") == [" the"]
    assert vocabulary.unknown(TRICKY) == []
    assert vocabulary.decode(vocabulary.encode(TRICKY)) == TRICKY
    assert Vocabulary.fit("subword", "ab", 409).size < 409, "no more is joined than there is"


def test_bits_of_speed_do_not_show_in_equality():
    one, other = (fit("subword", "abab"), fit("subword", "abab"))
    one.encode("ab")
    assert one == other and hash(one) == hash(other)


def test_classes_are_in_the_order_of_their_names_or_of_their_values():
    assert Classes.fit(["pos", "neg", "pos"]).names == ("neg", "pos")
    assert Classes.fit([10, np.int64(9), np.uint8(2)]).names == ("2", "9", "10")
    assert Classes.fit(["10", "-1.5", "9"]).names == ("-1.5", "9", "10")
    assert Classes.fit(["10", "9", "b"]).names == ("10", "9", "b")
    shuffled = random.Random(3).sample(range(23), 23)
    assert Classes.fit(shuffled) == Classes.fit(range(23))


def test_classes_encode_and_decode(tmp_path):
    classes = Classes.fit(["é", "O", "B"])
    numbers = classes.encode(["é", "B"], str)
    assert numbers.dtype == np.int32 and numbers.tolist() == [2, 0]
    assert classes.decode(numbers) == ["é", "B"]
    assert classes.size == 3 and classes.encode([], str).shape == (0,)
    assert Classes.fit([3, 5]).encode(np.array([5, 3, 5]), str).tolist() == [1, 0, 1]
    classes.save(tmp_path / "classes.json")
    assert Classes.load(tmp_path / "classes.json") == classes


def test_a_label_that_training_has_not_is_named_with_its_record():
    classes = Classes.fit(["negative", "positive"])
    with pytest.raises(UserError, match=r"^my.csv, line 3, has the label 'positiv', which no .*: positive\)\.$"):
        classes.encode(["negative", "positiv"], lambda i: f"my.csv, line {i + 2},")


@pytest.mark.parametrize("content", (None, "{", "[]", "{}"))
def test_classes_that_cannot_be_read_are_refused(tmp_path, content):
    path = tmp_path / "classes.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=r"The classes .*classes.json (do not exist|cannot be read)"):
        Classes.load(path)
