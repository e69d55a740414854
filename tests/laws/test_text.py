"""Laws of text: reading and splitting."""

import pytest

from seqlab.data.text import read_file, read_lines, read_text, split_by_position
from seqlab.types import UserError

TRICKY = "naïve — Straße\tЖ 日本語 👩‍🚀 e\u0301 \u202eשלום\u2028\ufeffend  two\n\n 'don't' _a_b 3.14 \r\x00 <unk>\n"


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
    with pytest.raises(UserError, match=rf"late.txt is not UTF-8: byte 0xff at offset {len(start) + 4}, line 2\."):
        read_text(tmp_path)


def test_texts_that_are_not_there_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"^The file nowhere.txt does not exist\.$"):
        read_text("nowhere.txt")
    for name in ("shakespeare", "reviews"):
        with pytest.raises(UserError, match=rf"a\.txt does not exist: run make data, or .*\.fetch {name}\.$"):
            read_text(f"data/{name}/a.txt")
    with pytest.raises(UserError, match=r"^The file data/mine/a.txt does not exist\.$"):
        read_text("data/mine/a.txt")
    with pytest.raises(UserError, match="is a folder; expected a file"):
        read_file(tmp_path)
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


def test_lines_end_at_line_feeds_alone(tmp_path):
    file = tmp_path / "lines.txt"
    file.write_bytes("\ufeffone\u2028still\x85 one\r\n\r\ntwo\x0b".encode())
    assert read_lines(file) == ["one\u2028still\x85 one", "", "two\x0b"]
    file.write_text("\ufeff")
    with pytest.raises(UserError, match=r"lines\.txt is empty"):
        read_lines(file)


def test_splits_that_cannot_be_are_refused():
    for fractions in ((0.8, 0.1), (0.8, 0.1, 0.2), (0.9, 0.1, 0.0)):
        with pytest.raises(UserError, match="expected three positive numbers whose sum is 1"):
            split_by_position(TRICKY, fractions)
    with pytest.raises(UserError, match="A text of 5 characters is too short to be split"):
        split_by_position("short")
