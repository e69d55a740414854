"""How good texts are that were written, beside those that should have been."""

import difflib
from collections.abc import Sequence

from sacrebleu.metrics import BLEU, CHRF

from seqlab.types import UserError, require

TOKENIZERS = ("13a", "zh", "ja-mecab", "ko-mecab", "intl", "char", "none")
"""sacrebleu's, without those that it would fetch from the network when a run has ended."""


def require_tokenizer(owner: str, tokenize: str) -> None:
    """Raise UserError unless sacrebleu can tokenise so here."""
    near = difflib.get_close_matches(str(tokenize), TOKENIZERS, n=1, cutoff=0.0)
    require(
        tokenize in TOKENIZERS,
        f"{owner} has tokenize {tokenize!r}; expected one of {', '.join(TOKENIZERS)} (nearest: {near[0]}).",
    )
    try:
        BLEU(tokenize=tokenize)
    except RuntimeError as error:  # of the two that need a dictionary
        extra = tokenize.partition("-")[0]
        raise UserError(
            f"{owner} has tokenize {tokenize!r}, which needs a dictionary: pip install 'sacrebleu[{extra}]'."
        ) from error


def score_texts(hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> dict[str, float]:
    """BLEU and chrF of a corpus, 0 … 100, one reference for each hypothesis, by sacrebleu.

        BLEU = min(1, e^{1 − r/c}) (p_1 p_2 p_3 p_4)^{1/4}      p_n: share of the n-grams that a reference has
        chrF = (1 + β²) P R / (β² P + R)                         of n-grams of 1 … 6 characters, β = 2

    Texts are detokenised: words, punctuation and case as they are read; BLEU's own tokens are those of
    `tokenize`, by default of mteval-v13a, which knows the spaces of European languages.

    Source   Post 2018, arXiv:1804.08771; BLEU: Papineni et al. 2002, ACL; chrF: Popović 2015, WMT.
    """
    told = list(hypotheses), [list(references)]
    return {"bleu": BLEU(tokenize=tokenize).corpus_score(*told).score, "chrf": CHRF().corpus_score(*told).score}
