"""Laws of sources: whole and disjoint splits, the same in every run; and what is wrong in a file, named by its line."""

import dataclasses
import importlib
import io
import json
import pickle
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import tensorflow_datasets as tfds
import yaml
from PIL import Image

from seqlab.build import build
from seqlab.data.records import Chosen, Columns, place, require_fields
from seqlab.data.sources.arrays import Arrays
from seqlab.data.sources.conll import Conll
from seqlab.data.sources.conllu import Conllu
from seqlab.data.sources.image_folder import ImageFolder
from seqlab.data.sources.labelled_text import LabelledText
from seqlab.data.sources.parallel import Parallel
from seqlab.data.sources.tfds import Tfds
from seqlab.data.splits import SPLITS, split_records
from seqlab.data.stream import stream_batches
from seqlab.data.table import read_table
from seqlab.data.text import read_text
from seqlab.data.vocabulary import Vocabulary
from seqlab.overrides import CONF
from seqlab.tasks.text_classification import TextClassification
from seqlab.training.programs import Programs
from seqlab.types import UserError

SOURCES = sorted((CONF / "task/source").glob("*.yaml"))


def write(folder, name, content):
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(file)


def refused(read, message):
    """The sentence with which a reading is refused: one, and as the pattern says."""
    with pytest.raises(UserError, match=message) as error:
        read()
    assert "\n" not in str(error.value)


# Splits


@pytest.mark.parametrize("n", (11, 101, 997))
@pytest.mark.parametrize("there", ((), ("test",), ("validation",), ("validation", "test")))
def test_splits_are_whole_disjoint_and_the_same_in_every_run(n, there):
    records = [{"i": i} for i in range(n)]
    given = {"train": records, **{name: [{"i": name}] * 3 for name in there}}
    splits = split_records("it", given, (0.8, 0.1, 0.1))
    assert list(splits) == list(SPLITS)
    cut = [record["i"] for name in SPLITS if name not in there for record in splits[name]]
    assert sorted(cut) == list(range(n))
    assert [splits[name] for name in there] == [given[name] for name in there]
    assert abs(len(splits["train"]) - (0.8 + 0.1 * len(there)) * n) < 1
    alone = split_records("it", {"train": records}, (0.8, 0.1, 0.1))
    for name in set(SPLITS[1:]) - set(there):
        # So that a run that is measured on another test set has never trained on its validation set.
        assert [record["i"] for record in splits[name]] == [record["i"] for record in alone[name]]
    again = split_records("it", given, (0.8, 0.1, 0.1))
    assert [[record["i"] for record in again[name]] for name in SPLITS] == [
        [record["i"] for record in splits[name]] for name in SPLITS
    ]


def test_the_order_of_cutting_is_the_one_that_was_written_down():
    splits = split_records("it", {"train": [{"i": i} for i in range(13)]}, (0.6, 0.2, 0.2))
    numbers = {name: [record["i"] for record in splits[name]] for name in SPLITS}
    assert numbers == {"train": [0, 1, 2, 4, 7, 8, 12], "validation": [9, 10, 11], "test": [3, 5, 6]}


def test_splits_that_cannot_be_are_refused():
    one = {"train": [{"i": 0}]}
    for fractions in ((0.8, 0.2), (0.8, 0.3, 0.1), (1.0, 0.0, 0.0)):
        refused(lambda f=fractions: split_records("it", one, f), "expected three positive numbers whose sum is 1")
    refused(lambda: split_records("it", one, (0.8, 0.1, 0.1)), "^it gives no record for train, of 1 that there are")


def test_records_are_sequences():
    columns = Columns({"a": [2, 3, 5], "b": np.array([[7], [11], [13]])})
    assert len(columns) == 3 and columns[-1]["a"] == 5 and columns[1]["b"].tolist() == [11]
    assert [record["a"] for record in columns] == [2, 3, 5]
    assert [record["a"] for record in columns[1:]] == [3, 5]
    with pytest.raises(IndexError):
        columns[3]
    chosen = Chosen(columns, np.array([2, 0]))
    assert [record["a"] for record in chosen] == [5, 2] and chosen[-2:1][0]["a"] == 5


def write_placed(folder, kind):
    """A source of nine records with empty lines between some; each says in `it` the line or the row where it begins."""
    path = folder / f"my.{kind}"
    if kind == "csv":
        cells = [f'"{line}\n",x' for line in range(2, 20, 2)]
        path.write_text("it,label\n" + "\n".join(cells), encoding="utf-8")
        return LabelledText(str(path)), "{}, line {},"
    if kind in ("tsv", "jsonl"):
        form = '{{"it": "{}"}}' if kind == "jsonl" else "{}"
        lines = [form.format(line) if line % 3 else "" for line in range(2, 15)]
        path.write_text("\n".join([form.format(1) if kind == "jsonl" else "it", *lines]), encoding="utf-8")
        return LabelledText(str(path)), "{}, line {},"
    if kind == "conll":
        path.write_text("".join(f"{line} O\nb O\n\n" + "\n" * (line % 5 == 0) for line in PLACES), encoding="utf-8")
        return Conll(str(path), fields={"it": 0}), "{}, from line {} on,"
    if kind == "conllu":
        rows = ["\t".join([i, *"_" * 9]) for i in "12"]
        text = "".join(f"# {line}\n{rows[0].replace('_', str(line), 1)}\n{rows[1]}\n\n" for line in range(2, 38, 4))
        path.write_text(text, encoding="utf-8")
        return Conllu(str(path), fields={"it": "form"}), "{}, from line {} on,"
    if kind == "pairs":
        path.write_text("".join(f"{line}\tx\n" for line in range(1, 10)), encoding="utf-8")
        return Parallel(str(path)), "{}, line {},"
    np.savez(path.with_suffix(".npz"), it=np.arange(9))
    return Arrays(str(path.with_suffix(".npz"))), "{}, row {} (from 0),"


PLACES = [1, 4, 7, 10, 14, 17, 20, 24, 27]


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "conll", "conllu", "pairs", "npz"])
def test_a_record_knows_where_it_was_read_however_the_records_are_cut_and_sent(tmp_path, kind):
    source, told = write_placed(tmp_path, kind)
    for split, records in source.records().items():
        cuts = (
            records,
            records[1:],
            records[::-1][:3],
            pickle.loads(pickle.dumps(records)),
            pickle.loads(pickle.dumps(records[:2])),
        )
        for some in cuts:
            for i, record in enumerate(some):
                it = record.get("it", record.get("source"))
                line = str(it[0] if isinstance(it, list) else it).strip()
                assert place(some, i, split) == told.format(source.path, line)


def test_a_mistake_in_a_record_names_its_file_and_line(tmp_path):
    for name, labels in (("train", "abab"), ("validation", "abc"), ("test", "ab")):
        lines = "".join(f"\n\nso it is,{label}" for label in labels)
        (tmp_path / f"{name}.csv").write_text(f"text,label{lines}", encoding="utf-8")
    source = LabelledText(*(str(tmp_path / f"{name}.csv") for name in SPLITS))
    for n_eval in (None, 3):
        told = r"validation\.csv, line 7, has the label 'c', which no training record has\.$"
        with pytest.raises(UserError, match=told):
            TextClassification(source, n_eval=n_eval)
    assert TextClassification(source, n_eval=2).classes.size == 2
    assert place([{}, {}], 1, "test") == "Record 1 of test"


def test_a_text_that_is_none_is_refused_with_its_place(tmp_path):
    for value, told in (
        ("3", r"^.*text\.jsonl, line 2, has the text 3; expected a text in quotes\.$"),
        ("[1]", r"^.*text\.jsonl, line 2, has the text \[1\]; expected"),
        ("null", r"^.*text\.jsonl, line 2, has nothing for text, which line 1 has\.$"),
    ):
        lines = ['{"text": "so", "label": "a"}', f'{{"text": {value}, "label": "b"}}']
        (tmp_path / "text.jsonl").write_text("\n".join(lines * 9), encoding="utf-8")
        refused(lambda: TextClassification(LabelledText(str(tmp_path / "text.jsonl"))), told)
    (tmp_path / "text.jsonl").write_text('{"text": null, "label": "a"}\n', encoding="utf-8")
    refused(lambda: LabelledText(str(tmp_path / "text.jsonl")).records(), r"line 1, has nothing for text\.$")


def test_a_column_that_is_missing_is_told_with_the_file(tmp_path):
    (tmp_path / "my.csv").write_text("text,stars\n" + "so,1\nno,2\n" * 9, encoding="utf-8")
    told = r"the source gives text, stars in .*my\.csv, line 2: say which one is label"
    refused(lambda: TextClassification(LabelledText(str(tmp_path / "my.csv"))), told)


def test_the_fields_that_a_task_reads_must_be_there():
    records = {"train": [{"texts": "a", "stars": 1}], "test": [{"texts": "b"}]}
    require_fields("sentiment", {"train": records["train"]}, ("texts", "stars"))
    refused(
        lambda: require_fields("sentiment", records, ["text", "stars"]),
        r"^sentiment reads the fields text, stars; the source gives texts, stars \(nearest to text: texts\): say which "
        r"one is text in task\.source\.fields\.$",
    )
    refused(lambda: require_fields("sentiment", records, ["stars"]), "the source gives texts: say which one is stars")
    refused(lambda: require_fields("sentiment", {"test": []}, ["stars"]), "reads test, but the source gives no record")


def test_a_vocabulary_of_train_knows_no_word_of_the_other_splits(tmp_path):
    rows = "".join(f"every w{i},{i % 2}\n" for i in range(53))
    splits = LabelledText(write(tmp_path, "a.csv", f"text,label\n{rows}")).records()
    vocabulary = Vocabulary.fit("word", (record["text"] for record in splits["train"]), spaces=False)
    assert vocabulary.size == 2 + len(splits["train"])
    for name in ("validation", "test"):
        assert all(vocabulary.encode(record["text"])[1] == 0 for record in splits[name])


# Labelled text


def test_a_mistake_in_a_stream_names_its_file_and_line(tmp_path):
    (tmp_path / "a.csv").write_text("text\n" + "\n".join("abcdefg"), encoding="utf-8")
    records = LabelledText(str(tmp_path / "a.csv")).records()["train"]

    def encode(records):
        raise UserError(f"{place(records, 1, 'train')} is bad: {records[1]['text']}")

    with pytest.raises(UserError, match=r"a\.csv, line \d, is bad: [a-g]") as raised:
        next(stream_batches(records, encode, seed=0, step=0, batch_size=2, n_workers=None))
    line, text = re.search(r"line (\d), is bad: (.)", str(raised.value)).groups()
    assert "abcdefg"[int(line) - 2] == text


CSV = '\ufefftext,label\r\n"He said ""no"", then\tleft.",neg\r\n"two\nlines",pos\r\n\r\n,neg\r\n'
TSV = '\ufefftext\tlabel\r\n"A quote\tneg\r\nz\u2028z, ok\tpos\r\n'
JSONL = '\ufeff{"text": "a\\tb", "label": 1, "more": []}\r\n\n{"label": 0, "text": "c\\n"}\n'


def test_tables_are_read_to_the_letter(tmp_path):
    assert read_table(Path(write(tmp_path, "a.csv", CSV)), {}) == [
        {"text": 'He said "no", then\tleft.', "label": "neg"},
        {"text": "two\nlines", "label": "pos"},
        {"text": "", "label": "neg"},
    ]
    assert read_table(Path(write(tmp_path, "a.tsv", TSV)), {"text": "text"}) == [
        {"text": '"A quote', "label": "neg"},
        {"text": "z\u2028z, ok", "label": "pos"},
    ]
    file = Path(write(tmp_path, "a.jsonl", JSONL.replace(', "more": []', "")))
    assert read_table(file, {"x": "text"}) == [{"x": "a\tb", "label": 1}, {"x": "c\n", "label": 0}]
    long = "a" * 200_003
    assert read_table(Path(write(tmp_path, "b.csv", f"text\n{long}\n")), {})[0]["text"] == long


def test_fields_are_columns_by_another_name(tmp_path):
    file = Path(write(tmp_path, "a.tsv", "review\tstars\ttext\na\t3\tb\n"))
    assert read_table(file, {"text": "review", "label": "stars"}) == [{"text": "a", "label": "3"}]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "text,label\na,b\nc\n", r"a\.csv, line 3, has 1 cells, but line 1 names 2 columns\.$"),
        ("a.csv", "\ntext,label,text\na,b,c\n", r"a\.csv, line 2: the column 'text' is there twice\.$"),
        ("a.csv", 'text,label\n"a\nb",c\n"d,e\nf', r"a\.csv, line 4, is no CSV: unexpected end of data\.$"),
        ("a.csv", 'text,label\n"a"b,c\n', r"a\.csv, line 2, is no CSV: "),
        ("a.csv", "", r"a\.csv is empty; expected the names of its columns"),
        ("a.csv", "text,label\n\n", r"a\.csv has no rows\.$"),
        ("a.csv", "txt,label\na,b\n", r"a\.csv, line 1, has no column 'text' .*txt, label \(nearest to text: txt\)\.$"),
        ("a.csv", b"text\n\xff\n", r"a\.csv is not UTF-8: byte 0xff at offset 5, line 2\.$"),
        ("a.tsv", "text\tlabel\na\tb\tc\n", r"a\.tsv, line 2, has 3 cells, but line 1 .*: is there a tab in a text\?$"),
        (
            "a.csv",
            "text;label\na;b\n",
            r"a\.csv, line 1, is one column, 'text;label'; expected a comma between columns\.$",
        ),
        (
            "a.tsv",
            "text,label\na,b\n",
            r"a\.tsv, line 1, is one column, 'text,label'; expected a tab between columns\.$",
        ),
        ("a.jsonl", '{"text": 1}\n{"text": 2\n', r"a\.jsonl, line 2, is no JSON: .* at column \d+\.$"),
        ("a.jsonl", '{"text": 1}\n{"txt": 2}\n', r"a\.jsonl, line 2, has nothing for text, which line 1 has\.$"),
        ("a.jsonl", '{"text": null}\n', r"a\.jsonl, line 1, has nothing for text"),
        ("a.jsonl", '\n{"text": 1, "text": 2}\n', r"a\.jsonl, line 2: the column 'text' is there twice\.$"),
        (
            "a.jsonl",
            '{"text": %s}\n' % ("1" * 5000),
            r"a\.jsonl, line 1, is JSON that cannot be read: Exceeds the limit",
        ),
        ("a.jsonl", "[" * 100_000, r"a\.jsonl, line 1, is JSON that cannot be read: maximum recursion depth exceeded"),
        ("a.jsonl", "[1]\n", r"a\.jsonl, line 1, is no JSON object but \[1\]\.$"),
        ("a.jsonl", "\n \n", r"a\.jsonl is empty\.$"),
        ("a.txt", "a", r"a\.txt has the suffix '\.txt'; expected \.csv or \.tsv or \.jsonl\.$"),
    ],
)
def test_broken_tables_are_refused_with_file_and_line(tmp_path, name, content, message):
    path = write(tmp_path, name, content)
    refused(lambda: LabelledText(path, fields={"text": "text"}).records(), message)


def test_blanks_around_the_name_of_a_column_say_nothing_and_a_folder_is_no_table(tmp_path):
    path = write(tmp_path, "a.csv", "text, label\n a,b\n")
    assert list(read_table(Path(path), None)) == [{"text": " a", "label": "b"}]
    refused(lambda: read_table(tmp_path, None), f"^{tmp_path} is a folder; expected a file\\.$")


def test_labelled_text_is_split_or_given_in_splits(tmp_path):
    rows = "".join(f"t{i},{i % 2}\n" for i in range(23))
    path = write(tmp_path, "all.csv", f"text,label\n{rows}")
    test = write(tmp_path, "test.csv", "text,label\nx,0\n")
    splits = LabelledText(path).records()
    assert [len(splits[name]) for name in SPLITS] == [18, 2, 3]
    given = LabelledText(path, test=test).records()
    assert [len(given[name]) for name in SPLITS] == [21, 2, 1] and given["test"][0]["text"] == "x"
    refused(lambda: LabelledText(path, test="nowhere.csv").records(), r"^The file nowhere\.csv does not exist\.$")
    refused(lambda: LabelledText(None), r"^labelled_text has path None; expected the path of a file\.$")
    refused(lambda: LabelledText("data/reviews/other.csv").records(), r"run make data, or .*\.fetch reviews\.$")


# CoNLL

CONLL = "-DOCSTART- -X- O O\n\nEU NNP B-NP  B-ORG\n\u3000 : O O\r\n\r\n\n# , O O\n"
CONLLU = """\
# sent_id = 1
1-2\tdu\t_\t_\t_\t_\t_\t_\t_\t_
1\tde\tde\tADP\tP\t_\t0\troot\t_\t_
2\tle\tle\tDET\tD\t_\t1\tdet\t_\t_
2.1\tnul\t_\t_\t_\t_\t_\t_\t_\t_
3\t# \tx\tPUNCT\t_\t_\t1\tpunct\t_\t_

# sent_id = 2
1\toui\toui\tINTJ\tI\t_\t0\troot\t_\t_
"""


def test_conll_columns_are_read_by_number(tmp_path):
    path = write(tmp_path, "a.conll", CONLL)
    read = Conll(path).read(path)
    assert read == [{"tokens": ["EU", "\u3000"], "tags": ["B-ORG", "O"]}, {"tokens": ["#"], "tags": ["O"]}]
    tabs = write(tmp_path, "b.conll", "New York\tB\n")
    assert Conll(tabs, fields={"tokens": 0, "ner": 1}).read(tabs) == [{"tokens": ["New York"], "ner": ["B"]}]


def test_conllu_reads_words_alone(tmp_path):
    path = write(tmp_path, "a.conllu", CONLLU)
    first, second = Conllu(path, fields={"tokens": "form", "tags": "xpos"}).read(path)
    assert first["tokens"] == ["de", "le", "# "] and first["tags"] == ["P", "D", "_"]
    assert first["head"] == ["0", "1", "1"] and second["upos"] == ["INTJ"]


@pytest.mark.parametrize(
    ("source", "content", "message"),
    [
        (Conll, "a O\nb\n", r"a\.txt, line 2, has 1 columns, but line 1 has 2\.$"),
        (Conll, "\na O\n\nb X O\n", r"a\.txt, line 4, has 3 columns, but line 2 has 2\.$"),
        (Conll, "\n\n", r"a\.txt holds no sentence\.$"),
        (Conll, b"a O\n\xe9 O\n", r"a\.txt is not UTF-8: byte 0xe9 at offset 4, line 2\.$"),
        (Conllu, "1 a b\n", r"a\.txt, line 1, has 1 columns; CoNLL-U has 10, by tabs\.$"),
        (Conllu, CONLLU.replace("\n\n", "\n"), r"a\.txt, line 8, has the id '1'; expected 4: an empty line ends a"),
        (Conllu, CONLLU.replace("2\tle", "x\tle"), r"a\.txt, line 4, has the id 'x'; expected 2"),
        (Conllu, "# nothing\n", r"a\.txt holds no sentence\.$"),
    ],
)
def test_broken_columns_are_refused_with_file_and_line(tmp_path, source, content, message):
    path = write(tmp_path, "a.txt", content)
    refused(lambda: source(path).records(), message)


def test_columns_that_there_are_not_are_refused(tmp_path):
    path = write(tmp_path, "a.conll", "a O\n")
    for column in (2, -3):
        source = Conll(path, fields={"tags": column})
        refused(
            lambda s=source: s.records(), rf"line 1, has no column {column} for the field tags; it has 2, from 0 to 1"
        )
    refused(
        lambda: Conll(path, fields={"tags": "upos"}), "conll has the column 'upos' for the field tags; expected its"
    )
    refused(lambda: Conllu(path, fields={"tags": "pos"}), r"no column 'pos' .*\(nearest to pos: (upos|xpos)\)")


# Parallel text


def test_pairs_come_from_one_file_or_two(tmp_path):
    one = write(tmp_path, "a.tsv", "\ufeffa b\tx\r\nc\ty\u2028y\r\n")
    two = [write(tmp_path, "a.en", "a b\nc\n"), write(tmp_path, "a.de", "x\ny\u2028y")]
    pairs = [{"source": "a b", "target": "x"}, {"source": "c", "target": "y\u2028y"}]
    assert list(Parallel(one).read(one)) == pairs == list(Parallel(two).read(two))
    splits = Parallel(two, validation=one, test=one).records()
    assert [len(splits[name]) for name in SPLITS] == [2, 2, 2]


def test_broken_pairs_are_refused_with_file_and_line(tmp_path):
    for line, n in (("c", 0), ("c\td\te", 2)):
        path = write(tmp_path, "a.tsv", f"a\tb\n{line}\n")
        refused(lambda p=path, n=n: Parallel(p).records(), rf"a\.tsv, line 2, has {n} tabs; expected one, between")
    path = write(tmp_path, "a.tsv", "a\tb\n \tc\n")
    refused(lambda: Parallel(path).records(), r"a\.tsv, line 2, has an empty source\.$")
    two = [write(tmp_path, "a.en", "a\nb\n"), write(tmp_path, "a.de", "a\n")]
    refused(lambda: Parallel(two).records(), r"a\.en has 2 lines, but .*a\.de has 1; expected one for each\.$")
    two = [two[0], write(tmp_path, "a.de", "a\n\n")]
    refused(lambda: Parallel(two).records(), r"a\.de, line 2, has an empty target\.$")
    refused(lambda: Parallel(["a"]), r"^parallel has path \['a'\]; expected the path of a file of pairs, or two paths")


# Arrays


def save(folder, **arrays):
    np.savez(folder / "a.npz", **arrays)
    return str(folder / "a.npz")


def test_arrays_are_records_with_and_without_splits(tmp_path):
    image, label = np.arange(23 * 2 * 3).reshape(23, 2, 3), np.arange(23)
    splits = Arrays(save(tmp_path, x=image, label=label), fields={"image": "x"}).records()
    assert sorted(int(record["label"]) for name in SPLITS for record in splits[name]) == list(range(23))
    assert all((record["image"] == image[record["label"]]).all() for record in splits["validation"])
    parts = {"x_train": image[:19], "label_train": label[:19], "x_test": image[19:], "label_test": label[19:]}
    splits = Arrays(save(tmp_path, **parts)).records()
    assert [len(splits[name]) for name in SPLITS] == [17, 2, 4]
    assert [int(record["label"]) for record in splits["test"]] == [19, 20, 21, 22]
    assert list(splits["train"][0]) == ["x", "label"]


def test_broken_arrays_are_refused(tmp_path):
    x, y = np.zeros((5, 2)), np.zeros(5)
    whole = Path(save(tmp_path, x=x, y=y)).read_bytes()
    for n in (0, 7, len(whole) // 2, len(whole) - 30):
        path = write(tmp_path, "cut.npz", whole[:n])
        refused(
            lambda p=path: Arrays(p).records(), r"cut\.npz cannot be read: it is no \.npz file, or is damaged or cut"
        )
    spoilt = bytearray(whole)
    spoilt[150] ^= 1
    path = write(tmp_path, "spoilt.npz", bytes(spoilt))
    refused(lambda: Arrays(path).records(), r"spoilt\.npz cannot be read")
    np.save(tmp_path / "a.npy", x)
    for arrays, message in (
        ({"x": x, "y": y[:3]}, r"a\.npz has 3 of y for train, but 5 of x\.$"),
        ({"x_train": x, "y_train": y, "x_test": x}, r"a\.npz has the array y, but none of it for test\.$"),
        ({"x_train": x, "x_test": x, "y_test": y}, r"a\.npz has the array y, but none of it for train\.$"),
        ({"x_train": x, "y": y}, r"a\.npz has arrays with a split in their names and without one \(y\)\.$"),
        ({"x_test": x}, r"a\.npz has no arrays for train, but for test\.$"),
        ({"x": x, "y": np.float32(1)}, r"a\.npz has y as a single number; expected an array of them\.$"),
        ({"x": x, "y": np.array([{}] * 5)}, r"a\.npz cannot be read: y holds Python objects\.$"),
        ({}, r"a\.npz holds no array\.$"),
    ):
        refused(lambda a=arrays: Arrays(save(tmp_path, **a)).records(), message)
    refused(lambda: Arrays(str(tmp_path / "a.npy")).records(), r"a\.npy is a single array; expected an \.npz file\.$")
    path = save(tmp_path, x=x, y=y)
    refused(lambda: Arrays(path, fields={"image": "z"}).records(), r"no column 'z' for the field image; it has x, y")


# Image folders


def draw(folder, name, shape, level):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full(shape, level, np.uint8)).save(folder / name)


def test_pictures_are_decoded_with_the_class_of_their_folder(tmp_path):
    for i in range(7):
        draw(tmp_path, f"cat/{i}.png", (5, 3, 3), i)
        draw(tmp_path, f"dog/{i}.PNG", (5, 3), 100 + i)
    write(tmp_path, "dog/.hidden.png", "x")
    write(tmp_path, "dog/notes.txt", "x")
    splits = ImageFolder(str(tmp_path)).records()
    found = [record for name in SPLITS for record in splits[name]]
    assert len(found) == 14 and {record["image"].shape for record in found} == {(5, 3, 3)}
    levels = {(record["label"], int(record["image"][0, 0, 0])) for record in found}
    assert levels == {("cat", i) for i in range(7)} | {("dog", 100 + i) for i in range(7)}
    grey = ImageFolder(str(tmp_path), size=(2, 7), channels=1).records()["train"][0]["image"]
    assert grey.shape == (2, 7, 1) and grey.dtype == np.uint8


def test_broken_folders_are_refused(tmp_path):
    path = str(tmp_path)
    refused(lambda: ImageFolder(f"{path}/no").records(), r"The folder .*no does not exist\.$")
    refused(lambda: ImageFolder(path).records(), r"has no folder in it; expected one for each class\.$")
    (tmp_path / "b").mkdir()
    refused(lambda: ImageFolder(path).records(), r"The folder .*b holds no picture\.$")
    for i in range(11):
        draw(tmp_path, f"b/{i:02}.png", (5, 3), i)
    draw(tmp_path, "b/11.png", (3, 5), 0)
    refused(lambda: ImageFolder(path).records(), r"11\.png is 3 × 5, but .*00\.png is 5 × 3: say task\.source\.size\.$")
    content = (tmp_path / "b/00.png").read_bytes()
    write(tmp_path, "b/11.png", content[:45])
    splits = ImageFolder(path).records()
    refused(lambda: [list(splits[name]) for name in SPLITS], r"11\.png cannot be read: it is no picture, or is damaged")
    write(tmp_path, "b/11.png", "text")
    refused(lambda: ImageFolder(path).records(), r"11\.png cannot be read: it is no picture, or is damaged\.$")
    refused(lambda: ImageFolder(path, channels=2), "channels 2; expected 1 or 3")
    refused(lambda: ImageFolder(path, size=[3]), r"size \[3\]; expected \[height, width\] or null")


# TFDS


class SmallSet(tfds.core.GeneratorBasedBuilder):
    """A data set with each kind of feature that is read without TensorFlow."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = tfds.features
        of_token = features.Sequence(features.ClassLabel(names=["O", "B-LOC"]))
        return tfds.core.DatasetInfo(
            builder=self,
            features=features.FeaturesDict(
                {
                    "text": features.Text(),
                    "label": features.ClassLabel(names=["neg", "pos"]),
                    "tokens": features.Sequence(features.Text()),
                    "ner": of_token,
                    "maybe": features.ClassLabel(names=["here"]),
                    "counts": features.Sequence(np.int64),
                    "values": features.Tensor(shape=(None, 2), dtype=np.float32),
                    "translation": features.Translation(languages=["en", "de"]),
                }
            ),
        )

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(range(23)), "test": self._generate_examples(range(100, 107))}

    def _generate_examples(self, numbers):
        for i in numbers:
            yield (
                i,
                {
                    "text": f"é {i}",
                    "label": i % 2,
                    "tokens": ["Köln", "a"][: i % 3],
                    "ner": ["B-LOC", "O"][: i % 3],
                    "maybe": -(i % 2),
                    "counts": list(range(i % 4)),
                    "values": np.full((i % 5, 2), i, np.float32),
                    "translation": {"en": f"one {i}", "de": f"eins {i}"},
                },
            )


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    data_dir = str(tmp_path_factory.mktemp("tfds"))
    SmallSet(data_dir=data_dir, file_format="array_record").download_and_prepare()
    return data_dir


def test_tfds_is_read_by_name(prepared):
    fields = {"tags": "ner", "source": "translation.en", "target": "translation.de"}
    splits = Tfds("small_set", fields=fields, data_dir=prepared).records()
    assert [len(splits[name]) for name in SPLITS] == [21, 2, 7]
    train = [record["text"] for name in ("train", "validation") for record in splits[name]]
    assert sorted(train) == sorted(f"é {i}" for i in range(23))
    for record in splits["test"]:
        i = int(record["text"].partition(" ")[2])
        assert record["label"] == ("neg", "pos")[i % 2]
        assert record["tokens"] == ["Köln", "a"][: i % 3] and record["tags"] == ["B-LOC", "O"][: i % 3]
        assert record["maybe"] == ("here", None)[i % 2]
        assert record["counts"].tolist() == list(range(i % 4))
        assert record["values"].tolist() == [[i, i]] * (i % 5)
        assert (record["source"], record["target"]) == (f"one {i}", f"eins {i}")
        assert all(isinstance(record[field], str) for field in ("text", "label", "source"))


@pytest.mark.parametrize("in_memory", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_model_trains_on_a_tfds_data_set(prepared, compose, in_memory):
    config = compose("task=sentiment", "model/cell=rnn", "model.encoder.features=3", "model.inputs.features=5")
    config.task.source = {"_target_": "seqlab.data.sources.tfds.Tfds", "name": "small_set", "data_dir": prepared}
    config.task.in_memory, config.task.max_length, config.trainer.batch_size = in_memory, 2, 5
    parts = build(config)
    programs = Programs(
        parts.task, parts.sets, parts.model, parts.optimiser, parts.settings, jax.devices()[:1], parts.seeds
    )
    before = programs.init()
    after = programs.advance(programs.init(), 5)
    assert after.step.tolist() == [5] and after.skipped.tolist() == [0]
    assert any(
        (a != b).any() for a, b in zip(jax.tree.leaves(before.params), jax.tree.leaves(after.params), strict=True)
    )


def test_tfds_splits_are_said_in_its_own_words(prepared):
    said = {"train": "train[:10]", "validation": "train[10:15]", "test": "train[15:]+test"}
    splits = Tfds("small_set:1.0.0", data_dir=prepared, **said).records()
    assert [len(splits[name]) for name in SPLITS] == [10, 5, 15]
    whole = [record["text"] for name in SPLITS for record in splits[name]]
    assert len(set(whole)) == 30


def test_tfds_refuses_what_there_is_not(prepared):
    def records(name="small_set", **options):
        return lambda: Tfds(name, data_dir=prepared, **options).records()

    refused(records(test="dev"), r"^tfds small_set has test 'dev'; expected one of train, test, or a part of it\.$")
    refused(records(train="train[:x]"), r"^tfds small_set has train 'train\[:x\]'; expected")
    refused(
        records(fields={"label": "stars"}), r"^The TFDS data set small_set has no column 'stars' for the field label"
    )
    refused(records("small_zet"), r"^There is no TFDS data set small_zet, neither prepared in .* nor in the catalogue")
    refused(records("imdb_review"), r"\(nearest: imdb_reviews\)\.$")
    refused(lambda: Tfds(""), "tfds has name ''; expected one")


def test_tfds_that_is_not_prepared_is_told_at_once_and_nothing_is_written(tmp_path):
    for name in ("imdb_reviews", "mnist", "ted_hrlr_translate/pt_to_en"):
        refused(
            lambda n=name: Tfds(n, data_dir=str(tmp_path)).records(),
            rf"^The TFDS data set {name} is not prepared in .*: where there is a network.*, run python -c \".*; "
            rf"tfds\.builder\('{name}', data_dir=.*, file_format='array_record'\)\.download_and_prepare\(\)\"$",
        )
    assert not list(tmp_path.iterdir())


def test_tfds_in_records_of_tensorflow_is_refused(prepared, tmp_path):
    folder = tmp_path / "small_set" / "1.0.0"
    folder.mkdir(parents=True)
    for file in Path(prepared, "small_set", "1.0.0").iterdir():
        content = file.read_bytes()
        if file.suffix == ".json":
            content = content.replace(b"array_record", b"tfrecord")
        (folder / file.name.replace("array_record", "tfrecord")).write_bytes(content)
    refused(
        lambda: Tfds("small_set", data_dir=str(tmp_path)).records(), r"is prepared as tfrecord, which TensorFlow alone"
    )


class PictureSet(tfds.core.GeneratorBasedBuilder):
    """Pictures as the files that they are: to prepare them as pictures takes TensorFlow."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = tfds.features.FeaturesDict({"image": tfds.features.Text()})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for i in range(11):
            file = io.BytesIO()
            Image.fromarray(np.full((5, 3, 3), i, np.uint8)).save(file, "PNG")
            yield i, {"image": file.getvalue()}


def test_tfds_pictures_are_read_without_tensorflow(tmp_path):
    PictureSet(data_dir=str(tmp_path), file_format="array_record").download_and_prepare()
    described = tmp_path / "picture_set" / "1.0.0" / "features.json"
    node = json.loads(described.read_text())
    picture = {"shape": {"dimensions": ["5", "3", "3"]}, "dtype": "uint8", "encodingFormat": "png"}
    image = {"pythonClassName": "tensorflow_datasets.core.features.image_feature.Image", "image": picture}
    node["featuresDict"]["features"]["image"] = image
    described.write_text(json.dumps(node))
    splits = Tfds("picture_set", test=None, data_dir=str(tmp_path)).records()
    images = [record["image"] for name in SPLITS for record in splits[name]]
    assert {image.shape for image in images} == {(5, 3, 3)}
    assert sorted(int(image[0, 0, 0]) for image in images) == list(range(11))


def test_tfds_is_read_without_its_code_and_without_tensorflow(prepared):
    code = (
        "import sys; from seqlab.data.sources.tfds import Tfds\n"
        f"records = Tfds('small_set', data_dir={prepared!r}).records()['test']\n"
        "print(len(records), records[0]['label'], 'tensorflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert re.fullmatch(r"7 (neg|pos) False\n", done.stdout), done.stderr


# The YAMLs


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: file.stem)
def test_source_opens_with_its_command(file):
    first = read_text(file).splitlines()[0]
    assert re.fullmatch(rf"# .*: python -m seqlab\.train task=\w+ task/source={file.stem}( task\.source\.\S+)?", first)


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: file.stem)
def test_source_says_every_field(file, tmp_path):
    node = yaml.safe_load(read_text(file))
    target = node.pop("_target_").rpartition(".")
    constructor = getattr(importlib.import_module(target[0]), target[2])
    assert set(node) == {field.name for field in dataclasses.fields(constructor)}
    source = constructor(**{**node, **{key: "nowhere.csv" for key, value in node.items() if value == "???"}})
    if "data/" in str(node.get("path")) and not Path(node["path"]).exists():
        refused(source.records, r"run make data, or python -m seqlab\.data\.fetch \w+\.$")


def test_jsonl_of_a_source_is_what_it_was_written_from(tmp_path):
    rows = [{"text": f'"{i}"\t\n,', "label": i % 3} for i in range(31)]
    path = write(tmp_path, "a.jsonl", "\n".join(map(json.dumps, rows)))
    splits = LabelledText(path, fractions=(0.5, 0.25, 0.25)).records()
    found = [record for name in SPLITS for record in splits[name]]
    assert sorted(found, key=str) == sorted(rows, key=str)
