"""How good texts are that were written, beside those that should have been."""

from collections.abc import Sequence

from sacrebleu.metrics import BLEU, CHRF


def score_texts(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """BLEU and chrF of a corpus, 0 … 100, one reference for each hypothesis, by sacrebleu.

        BLEU = min(1, e^{1 − r/c}) (p_1 p_2 p_3 p_4)^{1/4}      p_n: share of the n-grams that a reference has
        chrF = (1 + β²) P R / (β² P + R)                         of n-grams of 1 … 6 characters, β = 2

    Texts are detokenised: words, punctuation and case as they are read; BLEU's own tokens are those of mteval-v13a.

    Source   Post 2018, arXiv:1804.08771; BLEU: Papineni et al. 2002, ACL; chrF: Popović 2015, WMT.
    """
    told = list(hypotheses), [list(references)]
    return {"bleu": BLEU().corpus_score(*told).score, "chrf": CHRF().corpus_score(*told).score}
