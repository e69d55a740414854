"""What git says, in four languages."""

import gettext
from pathlib import Path

from seqlab.data.fetch import packages
from seqlab.types import require

NAME = "git_messages"
ABOUT = """
Messages of git in English and their translations: source, a tab, target. Kept are those of one line without a tab in
either language; white space at their ends is dropped, and each English message is there once.
"""
PACKAGE = "git"
LANGUAGES = ("de", "es", "fr")


def convert(scratch: Path, folder: Path) -> dict[str, str | int]:
    """Write de.tsv, es.tsv and fr.tsv."""
    root, version = packages.unpack_debian(PACKAGE, scratch)
    facts: dict[str, str | int] = {
        "source": f"the Debian package {PACKAGE} {version}, usr/share/locale/*/LC_MESSAGES/git.mo",
        "licence": "GPL-2",
    }
    for language in LANGUAGES:
        file = root / f"usr/share/locale/{language}/LC_MESSAGES/git.mo"
        require(file.is_file(), f"{PACKAGE} {version} holds no messages in {language}.")
        with file.open("rb") as content:
            pairs = read_pairs(gettext.GNUTranslations(content))
        lines = [f"{source}\t{target}\n" for source, target in pairs.items()]
        (folder / f"{language}.tsv").write_text("".join(lines), encoding="utf-8", newline="\n")
        facts[f"pairs en-{language}"] = len(pairs)
    return facts


def read_pairs(translations: gettext.GNUTranslations) -> dict[str, str]:
    """The English messages of one line with their translations; forms for several things are left out."""
    catalogue: dict[str | tuple[str, int], str] = translations._catalog  # type: ignore[attr-defined]
    pairs: dict[str, str] = {}
    for source, target in catalogue.items():
        if isinstance(source, str):
            source, target = source.strip(), target.strip()
            if source and target and not any(mark in source + target for mark in "\t\n\r\v\f\0"):
                pairs.setdefault(source, target)
    return pairs
