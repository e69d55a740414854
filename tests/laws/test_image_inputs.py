"""What inputs for images and video say, beside the laws of test_inputs.py: their equations, sizes and whole models."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from kinds import IMAGE, LENGTHS, PADDED, build_node, draw, inputs_reading, kind_of
from scipy.signal import convolve2d, correlate2d
from sparing import sparing

from seqlab.nn.convolution import ConvolutionGrid
from seqlab.nn.frames import FrameInputs
from seqlab.nn.lenet import LeNet
from seqlab.nn.patches import Patches
from seqlab.nn.spatial import KERNELS, POOLINGS, convolve, correlate, pool
from seqlab.types import UserError

H, W, C = IMAGE
IMAGE_INPUTS = inputs_reading("images")
NUMPY = {"max": np.max, "average": np.mean, "min": np.min}
ODD = np.random.default_rng(1).normal(size=(2, 3)).astype(np.float32)


def image(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def init(module, x, **options):
    variables = jax.jit(lambda x: module.init(jax.random.key(0), x, train=False))(x)
    return jax.tree.map(lambda a: a + 0.05, variables)


@pytest.mark.parametrize("kernel", [*KERNELS.values(), ODD])
@pytest.mark.parametrize(("ours", "theirs"), [(correlate, correlate2d), (convolve, convolve2d)])
def test_correlation_and_convolution_equal_those_of_scipy(ours, theirs, kernel):
    image_BHWC = image(2, 7, 11, 3)
    expected = [[theirs(image_BHWC[b, ..., c], kernel, "valid") for c in range(3)] for b in range(2)]
    np.testing.assert_allclose(ours(image_BHWC, kernel), np.moveaxis(expected, 1, -1), rtol=1e-5, atol=1e-5)


def test_only_the_flip_tells_them_apart():
    image_BHWC = image(1, 7, 11, 1)
    assert np.abs(convolve(image_BHWC, ODD) - correlate(image_BHWC, ODD)).max() > 0.1
    np.testing.assert_array_equal(convolve(image_BHWC, ODD[::-1, ::-1]), correlate(image_BHWC, ODD))
    symmetric = KERNELS["blur"]
    np.testing.assert_array_equal(convolve(image_BHWC, symmetric), correlate(image_BHWC, symmetric))


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_leave_a_flat_image_alone_or_find_nothing_in_it(name):
    said = correlate(np.ones((1, 5, 5, 1), np.float32), KERNELS[name])
    np.testing.assert_allclose(said, 0.0 if "edges" in name else 1.0, atol=1e-6)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("window", [1, 2, 3])
def test_pooling_equals_a_loop(pooling, window):
    image_BHWC = image(2, 7, 11, 3)
    n, m = 7 // window, 11 // window
    cut = lambda i, j: image_BHWC[:, window * i : window * (i + 1), window * j : window * (j + 1)]  # noqa: E731
    expected = [[NUMPY[pooling](cut(i, j), (1, 2)) for j in range(m)] for i in range(n)]
    np.testing.assert_allclose(pool(image_BHWC, pooling, window), np.moveaxis(expected, 2, 0), rtol=1e-5, atol=1e-6)


def test_least_is_greatest_of_the_negative():
    image_BHWC = image(2, 7, 11, 3)
    np.testing.assert_array_equal(pool(image_BHWC, "min"), -pool(-image_BHWC, "max"))


def sizes(variables):
    return {name: sum(a.size for a in jax.tree.leaves(leaf)) for name, leaf in variables["params"].items()}


def test_lenet_has_as_many_parameters_as_in_the_paper():
    """The grid has the convolutions alone."""
    x = image(1, 32, 32, 1)
    whole, grid = (
        sizes(jax.eval_shape(partial(module.init, train=False), jax.random.key(0), x))
        for module in (LeNet(), LeNet(16, grid=True))
    )
    assert whole == {"C1": 156, "C3": 2_416, "C5": 48_120, "F6": 10_164}
    assert grid == {"C1": 156, "C3": 2_416}


def maps(image_HWC, params, φ):
    """φ of the correlation with each kernel, by SciPy."""
    kernel, b_F = (np.asarray(params[name]) for name in ("kernel", "bias"))
    planes = [
        sum(correlate2d(image_HWC[..., c], kernel[..., c, f], "valid") for c in range(image_HWC.shape[-1]))
        for f in range(len(b_F))
    ]
    return φ(np.stack(planes, -1) + b_F)


def halve(image_HWC, pooling):
    h, w, F = image_HWC.shape
    return NUMPY[pooling](image_HWC.reshape(h // 2, 2, w // 2, 2, F), (1, 3))


@pytest.mark.parametrize(
    ("activation", "pooling"), [("tanh", "average"), pytest.param("relu", "max", marks=pytest.mark.slow)]
)
def test_lenet_equals_its_equations(activation, pooling):
    """Also for 28 × 28, which stands in the middle of zeros; the grid is what the first dense layer reads."""
    φ = {"tanh": np.tanh, "relu": lambda a: np.maximum(a, 0)}[activation]
    small = image(1, 28, 28, 1)
    whole, grid = (LeNet(n, g, activation, pooling) for n, g in ((84, False), (16, True)))
    variables = init(whole, small)
    p = variables["params"]
    S2 = halve(maps(np.pad(small[0], ((2, 2), (2, 2), (0, 0))), p["C1"], φ), pooling)
    S4 = halve(maps(S2, p["C3"], φ), pooling)
    C5 = φ(S4.reshape(-1) @ p["C5"]["kernel"] + p["C5"]["bias"])
    F6 = φ(C5 @ p["F6"]["kernel"] + p["F6"]["bias"])
    np.testing.assert_allclose(
        jax.jit(partial(whole.apply, train=False))(variables, small), F6[None, None], rtol=1e-4, atol=1e-5
    )
    of_grid = {"params": {name: p[name] for name in ("C1", "C3")}}
    said = jax.jit(partial(grid.apply, train=False))(of_grid, small)
    assert said.shape == (1, 25, 16)
    np.testing.assert_allclose(said[0], S4.reshape(25, 16), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_grid_equals_its_equation(pooling):
    """With sides that are odd on the way: 11 × 14 → 5 × 7 → 2 × 3."""
    x = image(1, 11, 14, 3)
    module = ConvolutionGrid(5, pooling=pooling)
    variables = init(module, x)
    y = x[0]
    for name in ("K_0", "K_1"):
        y = maps(np.pad(y, ((1, 1), (1, 1), (0, 0))), variables["params"][name], lambda a: np.maximum(a, 0))
        y = halve(y[: y.shape[0] // 2 * 2, : y.shape[1] // 2 * 2], pooling)
    np.testing.assert_allclose(
        jax.jit(partial(module.apply, train=False))(variables, x)[0], y.reshape(6, 5), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("class_token", [True, False])
def test_patches_equal_their_equation(class_token):
    x, P = image(2, 6, 9, 2), 3
    module = Patches(5, P, class_token)
    variables = init(module, x)
    W_, b = variables["params"]["W"]["kernel"], variables["params"]["W"]["bias"]
    patches = [x[:, i : i + P, j : j + P].reshape(2, -1) for i in range(0, 6, P) for j in range(0, 9, P)]
    expected = np.stack([p @ W_ + b for p in patches], 1)
    if class_token:
        first = np.broadcast_to(variables["params"]["x_class"], (2, 1, 5))
        expected = np.concatenate([first, expected], 1)
    np.testing.assert_allclose(module.apply(variables, x, train=False), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "frame_merge",
    sparing(
        [f"{frame} mean" for frame in IMAGE_INPUTS] + ["grid flat"], {"lenet mean", "lenet_grid mean"}.__contains__
    ),
)
def test_a_frame_is_read_as_an_image_by_itself(frame_merge):
    frame, merge = frame_merge.split()
    choice = f"model/inputs@model.inputs.frame={frame}"
    module = build_node("model/inputs/frames", "model.inputs", choice, f"model.inputs.merge={merge}")
    video = draw("video", garbage=1)
    variables = init(module, video[:1, :1])
    said = jax.jit(partial(module.apply, train=False))(variables, video, LENGTHS)
    assert (np.asarray(said)[PADDED] == 0).all()
    of_frame = {"params": variables["params"]["frame"]}
    y_NPF = module.frame.apply(of_frame, video[~PADDED], train=False)
    y_NF = y_NPF.mean(1) if merge == "mean" else y_NPF.reshape(len(y_NPF), -1)
    W_, b = variables["params"]["W"]["kernel"], variables["params"]["W"]["bias"]
    np.testing.assert_allclose(np.asarray(said)[~PADDED], y_NF @ W_ + b, rtol=1e-4, atol=1e-5)


def on(module, *shape):
    jax.eval_shape(partial(module.init, train=False), jax.random.key(0), jnp.zeros(shape))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: on(LeNet(), 1, 28, 33, 1), "up to 32 × 32, but these have 28 × 33"),
        (lambda: LeNet(0), "features is 0,"),
        (lambda: LeNet(activation="tahn"), "nearest is 'tanh'"),
        (lambda: LeNet(pooling="mean"), "pooling is 'mean'"),
        (lambda: on(ConvolutionGrid(5, n_blocks=4), 1, 11, 14, 1), "one of 11 × 14 can be halved 3 times"),
        (lambda: ConvolutionGrid(5, n_blocks=0), "n_blocks is 0,"),
        (lambda: ConvolutionGrid(5, kernel=0), "kernel is 0,"),
        (lambda: ConvolutionGrid(5, pooling="maxx"), "nearest is 'max'"),
        (lambda: on(Patches(5, 5), 1, 28, 28, 1), "not fill an image of 28 × 28; the nearest that do are 4 × 4"),
        (lambda: on(Patches(5, 40), 1, 28, 42, 1), "the nearest that do are 14 × 14"),
        (lambda: Patches(5, 0), "patch_size is 0,"),
        (lambda: FrameInputs(LeNet(), 0), "features is 0,"),
        (lambda: FrameInputs(LeNet(), 5, "max"), "merge is 'max'"),
        (lambda: on(FrameInputs(LeNet(), 5), 1, 2, 28, 33, 1), "but these have 28 × 33"),
        (lambda: on(FrameInputs(Patches(5, 5), 5), 1, 2, 28, 28, 1), "do not fill"),
        (lambda: pool(jnp.zeros((1, 2, 5, 1)), "max", 3), "3 × 3 does not fit into an image of 2 × 5"),
        (lambda: pool(jnp.zeros((1, 2, 5, 1)), "max", 0), "window is 0,"),
        (lambda: correlate(jnp.zeros((1, 2, 5, 1)), jnp.zeros((3, 3))), "3 × 3 does not fit into an image of 2 × 5"),
        (lambda: LeNet().init(jax.random.key(0), np.zeros((1, 8, 8, 1), np.uint8), train=False), "images of floats"),
    ],
)  # fmt: skip
def test_mistakes_are_told(make, told):
    with pytest.raises(UserError, match=told):
        make()


IDENTITY = ["model/encoder=identity", "model/pool=mean"]
TRANSFORMER = ["model/encoder=transformer", "model.encoder.mixer.causal=false", "model.encoder.features=8"]


@pytest.mark.parametrize(
    "inputs", sparing(inputs_reading("images", "video"), {"lenet", "lenet_grid", "frames", "grid"}.__contains__)
)
def test_a_classifier_learns_to_tell_images_apart(inputs):
    """By which half is bright, in noise."""
    model = build_node("model/classifier", "model", *IDENTITY, f"model/inputs={inputs}")
    labels_B = np.arange(6) % 2
    bright = np.stack([np.arange(H) < H // 2, np.arange(H) >= H // 2]).astype(np.float32)
    x, lengths = 0.5 * image(6, *IMAGE) + bright[labels_B][:, :, None, None], None
    if kind_of(model.inputs) == "video":
        x, lengths = np.repeat(x[:, None], 2, 1), np.array([2, 1, 1, 2, 2, 1])
    optimiser = optax.adam(1e-2)

    def loss(params):
        logits = model.apply(params, x, lengths, train=True)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels_B).mean(), logits

    @jax.jit
    def learn(params, state):
        gradient, logits = jax.grad(loss, has_aux=True)(params)
        updates, state = optimiser.update(gradient, state)
        return optax.apply_updates(params, updates), state, logits

    params = jax.jit(lambda: model.init(jax.random.key(0), x, train=False))()
    state = optimiser.init(params)
    for _ in range(40):
        params, state, logits = learn(params, state)
    assert (logits.argmax(-1) == labels_B).all()


@pytest.mark.slow
@pytest.mark.parametrize("positions", ["rotary", "learned", "none"])
def test_patches_are_read_by_a_transformer_that_knows_where_they_are(positions):
    """And by one without positions as a set: the patches in another order say the same."""
    overrides = ["model/inputs=patches", f"model/positions={positions}", "model/pool=first", *TRANSFORMER]
    model = build_node("model/classifier", "model", *overrides, "model.encoder.n_layers=1")
    x = image(2, *IMAGE)
    variables = init(model, x)
    apply = jax.jit(partial(model.apply, variables, train=False))
    turned = x[:, :, np.r_[4:8, 8:12, 0:4]]  # whole patches trade their places
    difference = float(jnp.abs(apply(x) - apply(turned)).max())
    assert apply(x).shape == (2, 2) and (difference < 1e-5 if positions == "none" else difference > 1e-4)


@pytest.mark.parametrize("decoder", sparing(["fixed", "context", "soft", "hard", "transformer"], "soft".__ne__))
@pytest.mark.parametrize("inputs", IMAGE_INPUTS)
def test_a_decoder_writes_about_an_image(inputs, decoder):
    """From a grid to look at, or from one vector."""
    overrides = [
        f"model/inputs={inputs}",
        "model/encoder=identity",
        f"model/decoder={decoder}",
        "model.inputs.features=8",
    ]
    model = build_node("model/encoder_decoder", "model", *overrides, n_outputs=7)
    told = image(2, *IMAGE), None, np.ones((2, 3), int), np.ones((2, 3))
    rngs = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    logits_BTV, _ = jax.eval_shape(lambda: model.init_with_output(rngs, *told, train=True))
    assert logits_BTV.shape == (2, 3, 7)


def test_a_tagger_says_one_thing_about_each_place():
    model = build_node("model/tagger", "model", "model/inputs=grid", "model/encoder=identity")
    logits_BTV, _ = jax.eval_shape(lambda: model.init_with_output(jax.random.key(0), image(2, *IMAGE), train=True))
    assert logits_BTV.shape == (2, 6, 2)
