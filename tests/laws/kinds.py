"""What inputs may read, ids, vectors, images or video, and which of them a module does read: it is asked."""

import functools
from functools import partial
from pathlib import Path

import jax
import numpy as np
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import OmegaConf

from seqlab.types import UserError

CONF = Path(__file__).parents[2] / "conf"
B, T, D, VOCAB = 5, 7, 3, 11
IMAGE = (8, 12, 3)  # sides that patches of 4 fill
LENGTHS = np.array([T, 4, 0, 1, 6])
PADDED = np.arange(T) >= LENGTHS[:, None]
KINDS = ("ids", "vectors", "images", "video")


def build_node(entry, group, *overrides, n_outputs=2):
    """Instantiate the node that a group lands at, composed from one file of conf/ and overrides."""
    with initialize_config_dir(str(CONF), version_base=None):
        text = OmegaConf.to_yaml(compose(entry, list(overrides)))
    sizes = {"vocab_size": VOCAB, "d_input": D, "n_outputs": n_outputs}
    for name, size in sizes.items():
        text = text.replace(f"${{task_size:{name}}}", str(size))
    return instantiate(OmegaConf.select(OmegaConf.create(text), group))


def draw(kind, garbage=0):
    """A batch; garbage stands past the lengths, NaN where it is not 0 and the kind has NaN."""
    rng = np.random.default_rng(0)
    if kind == "ids":
        return np.where(PADDED, garbage, rng.integers(0, VOCAB, (B, T)))
    if kind == "images":
        return rng.normal(size=(B, *IMAGE)).astype(np.float32)
    shape = (D,) if kind == "vectors" else IMAGE
    padded = PADDED.reshape(B, T, *[1] * len(shape))
    return np.where(padded, np.nan if garbage else 0, rng.normal(size=(B, T, *shape))).astype(np.float32)


def accepts(module, kind):
    try:
        jax.eval_shape(partial(module.init, train=False), jax.random.key(0), draw(kind))
    except UserError:
        return False
    return True


def kind_of(module):
    """The one kind that inputs read."""
    (kind,) = (kind for kind in KINDS if accepts(module, kind))
    return kind


@functools.cache
def kind_of_choice(name):
    """The kind that a choice of model/inputs reads; what a run was trained on is ids."""
    if OmegaConf.is_missing(OmegaConf.load(CONF / f"model/inputs/{name}.yaml"), "run"):
        return "ids"
    return kind_of(build_node(f"model/inputs/{name}", "model.inputs"))


def inputs_reading(*kinds):
    """The choices of model/inputs that read one of the kinds."""
    names = sorted(path.stem for path in CONF.glob("model/inputs/*.yaml"))
    return [name for name in names if kind_of_choice(name) in kinds]
