"""Laws of pictures and films, and of the tasks over them, that are not those of every task."""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_data import Given, write_images
from sparing import sparing

from seqlab.build import build
from seqlab.data.sources.moving_digits import MOVES, STEP, MovingDigits
from seqlab.data.sources.scenes import COLOURS, NOISE, RADII, Scenes
from seqlab.data.splits import SPLITS
from seqlab.evaluation.evaluate import finalise
from seqlab.nn.filters import Filters
from seqlab.tasks.captioning import Captioning
from seqlab.tasks.image_classification import ImageClassification, Pixels
from seqlab.tasks.video_classification import VideoClassification, VideoTagging
from seqlab.types import UserError, model_arguments


def picture(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def pictures(*labels: int) -> list[dict[str, Any]]:
    return [{"image": picture(5, 7, 3, seed=i), "label": label} for i, label in enumerate(labels)]


def films(*lengths: int) -> list[dict[str, Any]]:
    return [{"video": picture(T, 5, 7, 3, seed=i), "label": i % 2, "labels": [T] * T} for i, T in enumerate(lengths)]


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> MovingDigits:
    path = tmp_path_factory.mktemp("data") / "small.npz"
    write_images(path)
    return MovingDigits(str(path), hidden=0.3)


def test_bytes_stay_bytes_and_a_model_reads_them_as_shares_of_one():
    task = ImageClassification(Given([pictures(0, 1, 1)] * 3))
    batch: Any = task.examples()
    assert batch.inputs.dtype == np.uint8 and task.image_shape == (5, 7, 3)
    np.testing.assert_allclose(model_arguments(None, batch)[0], batch.inputs / 255, rtol=1e-6)


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("kernel", [2, 3])
def test_filters_are_the_convolution_of_the_library_and_so_are_their_gradients(padded, kernel):
    x_BHWC = jnp.asarray(picture(2, 5, 7, 3) / np.float32(255))
    ours = Filters(11, kernel, padded)
    theirs = nn.Conv(11, (kernel, kernel), padding="SAME" if padded else "VALID")
    variables = ours.init(jax.random.key(0), x_BHWC)
    variables = jax.tree.map(lambda a: a + 0.1, variables)

    def value_and_gradients(module):
        def loss(variables, x_BHWC):
            y_BHWF = module.apply(variables, x_BHWC)
            return jnp.sin(y_BHWF).sum(), y_BHWF

        return jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(variables, x_BHWC)

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4),
        value_and_gradients(ours),
        value_and_gradients(theirs),
    )


def test_baseline_is_the_softmax_of_distances_from_class_means():
    rows = pictures(0, 1, 1, 2, 0, 2, 2)
    for task in (ImageClassification(Given([rows] * 3)), Pixels(Given([rows] * 3), permuted=True)):
        x_NP = np.stack([row["image"].reshape(-1) / 255 for row in rows])
        label_N = np.array([row["label"] for row in rows])
        μ_CP = np.stack([x_NP[label_N == c].mean(0) for c in range(3)])
        s = np.square(x_NP - μ_CP[label_N]).sum(1).mean()
        expected = jax.nn.softmax(-np.square(x_NP[:, None] - μ_CP).sum(-1) / s)
        solved = jax.nn.softmax(jax.jit(task.solve)(task.examples()))
        np.testing.assert_allclose(solved, expected, rtol=1e-4)


def test_pixels_are_the_picture_row_by_row_or_all_in_one_other_order():
    rows = pictures(0, 1, 1)
    plain, permuted = (Pixels(Given([rows] * 3), permuted=permuted) for permuted in (False, True))
    x_BTD, π_BTD = (np.asarray(task.examples().inputs) for task in (plain, permuted))
    assert x_BTD.shape == (3, 35, 3) and plain.d_input == 3 and plain.image_shape is None
    np.testing.assert_allclose(x_BTD[1, 2 * 7 + 4], rows[1]["image"][2, 4] / 255, rtol=1e-6)
    π_T = np.random.RandomState(1729).permutation(35)
    np.testing.assert_array_equal(π_BTD, x_BTD[:, π_T])
    assert (π_T != np.arange(35)).mean() > 0.9


FEW = pictures(0, 1)


def test_a_picture_without_channels_is_grey():
    rows = [{"image": picture(5, 7, seed=i), "label": i % 2} for i in range(3)]
    task = ImageClassification(Given([rows] * 3))
    assert task.image_shape == (5, 7, 1) and task.examples().inputs.shape == (3, 5, 7, 1)


@pytest.mark.parametrize(
    ("task", "rows", "told"),
    [
        (
            ImageClassification,
            [FEW[0], {"image": picture(5, 8, 3), "label": 1}],
            r"Record 1 of validation has image of 5 × 8 × 3 \(uint8\), but the first of train has 5 × 7 × 3 \(uint8\)",
        ),
        (Pixels, [{"image": picture(5, 7, 1), "label": 1}], "Record 0 of validation has image of 5 × 7 × 1"),
        (ImageClassification, [{"image": FEW[0]["image"] / 255, "label": 1}], r"has image of 5 × 7 × 3 \(float64\)"),
        (
            ImageClassification,
            [{"image": picture(5), "label": 1}],
            r"image of shape \(5,\); expected \(rows, columns, channels\)",
        ),
        (
            ImageClassification,
            [{"image": FEW[0]["image"].astype(int), "label": 1}],
            r"type int64; expected bytes \(uint8\), or floats",
        ),
        (
            ImageClassification,
            [FEW[0], {"image": FEW[0]["image"] / np.array([1, 1, np.nan]), "label": 1}],
            r"Record 1 of validation has image of shape \(5, 7, 3\) with a value that is not a finite number, or too",
        ),
        (
            ImageClassification,
            [{"image": FEW[0]["image"] * 1e40, "label": 1}],
            "not a finite number, or too large a one",
        ),
        (ImageClassification, [{"image": FEW[0]["image"], "label": 7}], "has the label '7', which no training record"),
        (VideoTagging, [{"video": picture(2, 5, 7, 3), "labels": [3]}], "has 2 frames, but 1 labels; expected as many"),
        (
            VideoClassification,
            [{"video": picture(5, 7), "label": 0}],
            r"video of shape \(5, 7\); expected \(fram",
        ),
        (VideoClassification, [{"video": picture(2, 5, 8, 3), "label": 0}], "video of 5 × 8 × 3"),
    ],
)
def test_pictures_that_do_not_fit_are_refused_in_a_sentence(task, rows, told):
    train = films(3, 2) if "video" in task.fields else FEW
    with pytest.raises(UserError, match=told):
        task(Given([train, rows, train]))


@pytest.mark.parametrize(
    ("task", "shape", "axis"),
    [
        (ImageClassification, (1, 7, 5), -3),
        (ImageClassification, (3, 11, 7), -3),
        (VideoClassification, (5, 3, 11, 7), -3),
        (VideoClassification, (3, 5, 11, 7), -4),
    ],
)
def test_channels_that_stand_first_are_refused_and_turned_as_the_sentence_says(task, shape, axis):
    field = task.fields[0]
    records = [{field: picture(*shape, seed=i), "label": i % 2} for i in range(3)]
    told = (
        rf"Record 0 of train has {field} of shape \({', '.join(map(str, shape))}\), whose channels seem to stand first"
    )
    with pytest.raises(UserError, match=rf"{told}; expected .*np\.moveaxis\({field}, {axis}, -1\)"):
        task(Given([records] * 3))
    whole = np.moveaxis(np.stack([record[field] for record in records]), axis, -1)
    turned = task(Given([[{**record, field: row} for record, row in zip(records, whole, strict=True)]] * 3))
    assert turned.image_shape == (*(n for i, n in enumerate(shape) if i - len(shape) != axis), shape[axis])[-3:]


@pytest.mark.parametrize("shape", [(3, 7, 3), (3, 3, 1), (1, 7, 3), (3, 7, 4), (7, 1, 3), (5, 7, 11), (1, 7)])
def test_channels_that_stand_last_are_taken_whatever_stands_ahead(shape):
    image_shape = ImageClassification(
        Given([[{"image": picture(*shape), "label": i} for i in range(2)]] * 3)
    ).image_shape
    assert image_shape == (*shape, 1)[:3]


def test_films_are_padded_behind_their_frames_and_what_is_cut_is_counted():
    for task in (VideoClassification(Given([films(3, 7, 2)] * 3)), VideoTagging(Given([films(3, 7, 2)] * 3))):
        assert task.image_shape == (5, 7, 3)
        batch: Any = dataclasses.replace(task, max_length=5).examples()
        assert batch.inputs.shape == (3, 5, 5, 7, 3) and batch.inputs.dtype == np.uint8
        np.testing.assert_array_equal(batch.lengths, [3, 5, 2])
        assert batch.weights.sum() == (3 if task.target_per == "row" else 10)
        assert dataclasses.replace(task, max_length=5).describe()["train"]["cut"] == 1


def test_a_text_ends_with_its_end_unless_it_is_cut_and_is_written_as_it_was():
    rows = [{"image": picture(5, 7, 3), "text": text} for text in ("a red circle", "a circle above a square", "")]
    task = Captioning(Given([rows] * 3))
    batch: Any = task.examples()
    n_B = batch.weights.sum(1).astype(int)
    assert n_B.tolist() == [4, 6, 1]
    for row, ids_T, n in zip(rows, np.asarray(batch.targets), n_B, strict=True):
        assert ids_T[n - 1] == task.eos
        assert task.decode_target(ids_T[:n]) == row["text"]
    short: Any = dataclasses.replace(task, max_target_length=3).examples()
    assert short.weights.sum(1).tolist() == [3, 3, 1] and (short.targets[:2] != task.eos).all()


def test_the_most_frequent_text_is_the_baseline_of_those_that_are_written():
    rows = [{"image": picture(5, 7, 3), "text": text} for text in ("a circle", "a b", "a b", "it is a square")]
    task = Captioning(Given([rows, rows[:2], rows]))
    assert task.solve_written("validation") == ["a b"] * 2
    references = task.texts("test")["reference"]
    assert (
        task.score_written(references, references)["chrf"]
        == 100
        > 50
        > task.score_written(["b"] * 4, references)["chrf"]
    )


def test_unigram_by_hand():
    rows = [{"image": picture(5, 7, 3), "text": text} for text in ("a", "a b")]
    task = Captioning(Given([rows] * 3))
    a, unknown = task.target_vocabulary.encode("a")[0], 0
    # a, end, a, b, end; and <unk>.
    p_V = np.exp(np.asarray(jax.jit(task.solve)(task.examples())))[0, 0]
    np.testing.assert_allclose(p_V[[a, task.eos, unknown]], [(2 + 1 / 4) / 6, (2 + 1 / 4) / 6, 1 / 24], rtol=1e-5)
    np.testing.assert_allclose(p_V.sum(), 1, rtol=1e-5)


def covers(image: Any, colour: str) -> tuple[Any, int]:
    """The centre (row, column) of what has a colour, and how wide it is."""
    least: Any = np.array(COLOURS[colour])
    inside = ((image >= least) & (image <= least + NOISE)).all(-1)
    rows, columns = inside.nonzero()
    return np.array([rows.min() + rows.max(), columns.min() + columns.max()]) / 2, int(np.ptp(columns)) + 1


def test_scenes_show_what_their_text_says():
    scenes = Scenes(n=97, side=37)
    seen: set[str] = set()
    for records in scenes.records().values():
        for record in records:
            words, image = record["text"].split(), record["image"].astype(int)
            assert image.shape == (37, 37, 3)
            relation = {"left": 1, "above": 0}.get(words[4]) if len(words) > 4 else None
            first, other = words[1:4], words[-3:]
            seen |= {*words}
            if relation is None or first[1] == other[1]:
                continue
            (centre, width), (place, other_width) = covers(image, first[1]), covers(image, other[1])
            assert [width, other_width] == [2 * RADII[size[0]] + 1 for size in (first, other)]
            apart = place - centre
            assert apart[relation] > 2 * abs(apart[1 - relation]) and apart[relation] > 0
    assert seen == {"a", "left", "of", "above", *RADII, *COLOURS, "circle", "square", "triangle"}


def test_scenes_and_films_are_the_same_whenever_they_are_drawn(digits):
    for source, field in ((Scenes(n=17), "image"), (digits, "video")):
        there, again = source.records(), dataclasses.replace(source).records()
        for split in SPLITS:
            np.testing.assert_array_equal(there[split][1][field], again[split][1][field])
        drawn = [record[field].tobytes() for records in there.values() for record in records[:]]
        assert len(set(drawn)) == len(drawn)
    # The first scenes are the same however many there are.
    few, many = (Scenes(n=n).records()["train"].records for n in (17, 31))
    np.testing.assert_array_equal(few[16]["image"], many[16]["image"])


def test_labels_of_frames_are_how_the_picture_moved(digits):
    bare = dataclasses.replace(digits, hidden=0.0)
    train: Any = bare.records()["train"]
    seen = set()
    for film, pictures in zip(train, train.pictures, strict=True):
        video, moves = film["video"], film["labels"]
        assert 6 <= len(video) == len(moves) <= 16 and film["label"] == pictures["label"] and moves[0] == "still"
        places = []
        for frame in video:
            rows, columns, _ = frame.nonzero()
            places.append(np.array([rows.min(), columns.min()]))
            assert frame.astype(int).sum() == pictures["image"].astype(int).sum()
        for move, before, after in zip(moves[1:], places, places[1:], strict=False):
            np.testing.assert_array_equal(after - before, STEP * np.array(MOVES[move]))
            seen.add(move)
    assert seen == {*MOVES}


def test_what_is_hidden_is_as_much_as_said(digits):
    lit = [film["video"] > 0 for film in digits.records()["train"][:50]]
    bare = [film["video"] > 0 for film in dataclasses.replace(digits, hidden=0.0).records()["train"][:50]]
    n_lit, n_bare = (sum(int(film.sum()) for film in some) for some in (lit, bare))
    np.testing.assert_allclose(n_lit / n_bare, 0.7, atol=0.01)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Scenes(n=2), "scenes has n 2; expected an integer of at least 3"),
        (lambda: Scenes(side=20), "scenes has side 20; expected an integer of at least 27"),
        (lambda: MovingDigits("x.npz", min_frames=5, max_frames=4), "moving_digits has max_frames 4; expected"),
        (lambda: MovingDigits("x.npz", hidden=1.0), r"moving_digits has hidden 1.0; expected a number from 0 on"),
    ],
)
def test_sources_that_cannot_be_are_refused(make, told):
    with pytest.raises(UserError, match=told):
        make()


def test_a_canvas_too_small_is_refused(digits):
    with pytest.raises(UserError, match="moving_digits has side 9; expected at least 11, as pictures of 8 × 8"):
        VideoClassification(dataclasses.replace(digits, side=9))


SEERS = {
    "vector": "model/inputs=lenet model/decoder=fixed",
    "vector at each step": "model/inputs=lenet model/decoder=context",
    "soft attention": "model/inputs=grid model/decoder=soft",
    "LeNet's grid": "model/inputs=lenet_grid model/decoder=soft",
    "hard attention": "model/inputs=grid model/decoder=hard",
    "recurrent grid": "model/inputs=grid model/encoder=stack model/layer=bidirectional model/cell=gru",
    "Transformer": "model/inputs=patches model/encoder=transformer model/decoder=transformer "
    "model.encoder.mixer.causal=false model.encoder.n_layers=1 model.decoder.n_layers=1",
}


SPARED = {
    "vector",
    "vector at each step",
    "hard attention",
    "LeNet's grid",
    "recurrent grid",
    "Transformer",
    "soft attention",
}


@pytest.mark.parametrize("kind", sparing(SEERS, SPARED.__contains__))
def test_a_captioner_of_each_kind_writes_what_it_is_told(compose, kind):
    """And writing step by step, from the picture alone, equals being told."""
    parts = build(compose("task=captioning", "+debug=tiny", *SEERS[kind].split()))
    model, key = parts.model, jax.random.key(0)
    batch = jax.tree.map(lambda leaf: leaf[:3], parts.sets["validation"])
    inputs, lengths, targets, weights = model_arguments(model, batch)

    @jax.jit
    def both(key):
        outputs, variables = model.init_with_output(key, inputs, lengths, targets, weights, train=False)
        state, logits_BV = model.apply(variables, inputs, lengths, method="begin")
        _, second_BV = model.apply(variables, state, targets[:, 0], method="step")
        return outputs, jnp.stack([logits_BV, second_BV], 1)

    outputs, stepped = both(key)
    assert outputs.shape == (*targets.shape, parts.task.n_outputs)
    np.testing.assert_allclose(stepped, outputs[:, :2], rtol=1e-4, atol=1e-5)
    assert np.ptp(np.asarray(outputs[:, 0]), axis=0).max() > 1e-6, "the pictures differ, and so do the words"
    assert np.isfinite(finalise(parts.task.measure(outputs, batch))["loss"])
