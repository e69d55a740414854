"""What is done to a gradient g before the learning rate: clips and directions, each an optax transformation.

The constructors are optax's with the field's names for their numbers, which are checked here, at the door.
"""

import math

import optax

from seqlab.types import require


def clip_by_global_norm(max_norm: float) -> optax.GradientTransformation:
    """Shorten the gradient of all parameters together to a norm of at most `max_norm`.

        g ← g · min(1, max_norm / ‖g‖)

    Source   Pascanu et al. 2013, arXiv:1211.5063, algorithm 1.
    """
    _require_positive("max_norm", max_norm)
    return optax.clip_by_global_norm(max_norm)


def clip_by_value(max_delta: float) -> optax.GradientTransformation:
    """Clip each element of the gradient.

        g ← min(max(g, −max_delta), max_delta)

    Source   Mikolov 2012 (PhD thesis), section 3.2.2.
    """
    _require_positive("max_delta", max_delta)
    return optax.clip(max_delta)


def momentum(mu: float, nesterov: bool) -> optax.GradientTransformation:
    """Momentum: follow a decaying sum of gradients; Nesterov's form looks one step ahead.

        v ← μ v + g
        d = v            (nesterov: d = g + μ v)

    Source   Sutskever et al. 2013, eqs. 1-4.
    Differs  v is in units of the gradient: the learning rate multiplies d, not g.
    """
    _require_decay("mu", mu)
    return optax.trace(mu, nesterov=nesterov)


def adagrad(initial_accumulator: float, eps: float) -> optax.GradientTransformation:
    """Adagrad: divide by the root of the sum of all squared gradients, which begins at `initial_accumulator`.

        s ← s + g²
        d = g / √(s + ε)

    Source   Duchi et al. 2011, figure 1.
    """
    _require_not_negative("initial_accumulator", initial_accumulator)
    _require_positive("eps", eps)
    return optax.scale_by_rss(initial_accumulator, eps)


def rmsprop(decay: float, eps: float) -> optax.GradientTransformation:
    """RMSProp: divide by a running root mean square of the gradient.

        s ← ρ s + (1 − ρ) g²
        d = g / √(s + ε)

    Source   Tieleman & Hinton 2012, lecture 6.5.
    Differs  ε is inside the root (optax); PyTorch adds it outside.
    """
    _require_decay("decay", decay)
    _require_positive("eps", eps)
    return optax.scale_by_rms(decay, eps)


def adam(b1: float, b2: float, eps: float) -> optax.GradientTransformation:
    """Adam: momentum over the running root mean square, both corrected for having begun at zero.

        m ← β₁ m + (1 − β₁) g,    s ← β₂ s + (1 − β₂) g²
        d = m̂ / (√ŝ + ε),         m̂ = m / (1 − β₁ᵗ),  ŝ = s / (1 − β₂ᵗ)

    Source   Kingma & Ba 2015, arXiv:1412.6980, algorithm 1.
    """
    _require_decay("b1", b1)
    _require_decay("b2", b2)
    _require_positive("eps", eps)
    return optax.scale_by_adam(b1, b2, eps)


def lion(b1: float, b2: float) -> optax.GradientTransformation:
    """Lion: the sign of a blend of gradient and momentum.

        d = sign(β₁ m + (1 − β₁) g)
        m ← β₂ m + (1 − β₂) g

    Source   Chen et al. 2023, arXiv:2302.06675, algorithm 2.
    """
    _require_decay("b1", b1)
    _require_decay("b2", b2)
    return optax.scale_by_lion(b1, b2)


def _require_decay(name: str, value: float) -> None:
    require(
        0 <= value < 1, f"{name}={value} should be at least 0 and below 1: it is the share of the past that is kept."
    )


def _require_positive(name: str, value: float) -> None:
    require(0 < value < math.inf, f"{name}={value} should be a positive number.")


def _require_not_negative(name: str, value: float) -> None:
    require(0 <= value < math.inf, f"{name}={value} should be zero or a positive number.")
