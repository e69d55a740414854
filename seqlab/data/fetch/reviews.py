"""Snippets of film reviews, each rated by people."""

import csv
import tarfile
from pathlib import Path

from seqlab.data.fetch import packages

NAME = "reviews"
ABOUT = """
Sentences from film reviews. `rating` is the mean of several people's ratings from −4 (very negative) to 4 (very
positive); `label` is its sign: positive where it is above 0, negative where it is below. Those at 0 are left out.
"""
PACKAGE, VERSION = "vaderSentiment", "3.3.2"
ARCHIVE, FILE = "hutto_ICWSM_2014.tar.gz", "movieReviewSnippets_GroundTruth.txt"


def convert(scratch: Path, folder: Path) -> dict[str, str | int]:
    """Write reviews.csv: text, label, rating."""
    root = packages.unpack_sdist(f"{PACKAGE}=={VERSION}", scratch)
    with tarfile.open(root / "additional_resources" / ARCHIVE) as files:
        member = files.extractfile(f"{ARCHIVE.partition('.')[0]}/{FILE}")
        assert member is not None
        lines = member.read().decode("utf-8").replace("\r\n", "\n").split("\n")
    rated = [(text.strip(), float(rating)) for _, rating, text in (line.split("\t", 2) for line in lines if line)]
    rows = [(text, "positive" if rating > 0 else "negative", rating) for text, rating in rated if rating != 0]
    with (folder / "reviews.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("text", "label", "rating"), *rows])
    return {
        "source": f"the Python package {PACKAGE} {VERSION} (its sdist), additional_resources/{ARCHIVE}, {FILE}",
        "paper": "Hutto & Gilbert 2014, VADER: a parsimonious rule-based model for sentiment analysis (ICWSM)",
        "licence": "MIT",
        "reviews": len(rows),
        "positive": sum(label == "positive" for _, label, _ in rows),
        "negative": sum(label == "negative" for _, label, _ in rows),
        "left out": len(rated) - len(rows),
    }
