"""The figures of a run, drawn from a file as training writes it."""

import json
from itertools import combinations

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from seqlab.analysis.figures import draw_learning_curves, fit_to, plot_learning_curves, read_curves
from seqlab.evaluation.interval import interval
from seqlab.types import UserError

R = 3
STEPS = {"train": np.arange(7, 78, 7), "validation": np.array([35, 77])}


def value(metric: str, split: str, step: int, replica: int) -> float:
    scale = {"train": 1.0, "validation": 2.0}[split] * (1 + 0.1 * replica)
    return scale * {"loss": 0.9 ** float(step), "accuracy": 0.4 - 1 / (3 + step), "learning_rate": 1e-3}[metric]


@pytest.fixture
def metrics_path(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with path.open("w") as file:
        for step in STEPS["train"]:
            for split, metrics in (
                ("train", ["accuracy", "learning_rate", "loss"]),
                ("validation", ["accuracy", "loss"]),
            ):
                if step in STEPS[split]:
                    values = {metric: [value(metric, split, step, r) for r in range(R)] for metric in metrics}
                    if step == 77:
                        values["accuracy"][0] = float("nan")
                    event = {"step": int(step), "split": split, "values": values, "rates": {}, "wall_time": 0.5}
                    file.write(json.dumps(event) + "\n")
    return path


def test_curves_are_what_was_logged(metrics_path):
    curves = read_curves(metrics_path)
    assert [(metric, list(panel)) for metric, panel in curves.items()] == [
        ("loss", ["train", "validation"]),
        ("accuracy", ["train", "validation"]),
        ("learning_rate", ["train"]),
    ]
    steps_E, values_ER = curves["loss"]["validation"]
    np.testing.assert_array_equal(steps_E, STEPS["validation"])
    np.testing.assert_array_equal(values_ER, [[value("loss", "validation", s, r) for r in range(R)] for s in steps_E])


def test_a_panel_shows_means_intervals_and_replicas(metrics_path):
    figure = draw_learning_curves(read_curves(metrics_path))
    loss, accuracy, rate = (axis for axis in figure.axes if axis.axison)
    assert [axis.get_title(loc="left") for axis in (loss, accuracy, rate)] == ["loss", "accuracy", "learning rate"]
    assert [axis.get_yscale() for axis in (loss, accuracy, rate)] == ["log", "linear", "linear"]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["train", "validation"]

    assert len(loss.lines) == 2 * (R + 1)
    (mean,) = (line for line in loss.lines if line.get_label() == "validation")
    step = STEPS["validation"][-1]
    expected = interval([value("loss", "validation", step, r) for r in range(R)])
    assert (mean.get_xdata()[-1], mean.get_ydata()[-1]) == (step, expected.mean)
    band = loss.collections[1].get_paths()[0].vertices
    top = band[band[:, 0] == step, 1].max()
    np.testing.assert_allclose(top, expected.mean + expected.half_width)
    assert accuracy.get_ylim()[0] < accuracy.collections[0].get_paths()[0].vertices[:, 1].min()


@pytest.mark.parametrize(
    "metric, values, ends, low, high",
    [
        ("accuracy", [0.2, 0.8], [-0.1, 1.3], -0.1, 1.3),
        ("accuracy", [0.2, 0.8], [0.3, 0.7], 0.2, 0.8),
        ("accuracy", [0.2, 0.8], [-0.5, 1.5, np.nan], 0.2, 0.8),  # farther out than the values span
        ("loss", [0.01, 1.0], [-3.0, 0.001, 50.0, 1000.0], 0.001, 50.0),
    ],
)
def test_a_panel_takes_in_the_ends_of_bands_that_are_near(metric, values, ends, low, high):
    axis = Figure().subplots()
    fit_to(axis, metric, np.array([*values, np.nan]), np.array(ends))
    limits = [low, high, *axis.get_ylim()]
    low, high, bottom, top = np.log(limits) if axis.get_yscale() == "log" else limits
    np.testing.assert_allclose([bottom, top], [low - 0.05 * (high - low), high + 0.05 * (high - low)])


def test_a_replica_that_is_not_finite_ends_the_mean_but_not_the_others(metrics_path):
    accuracy = draw_learning_curves(read_curves(metrics_path)).axes[1]
    first, second, _, mean = (line.get_ydata() for line in accuracy.lines[: R + 1])
    assert np.isnan(mean[-1]) and np.isnan(first[-1]) and np.isfinite(mean[:-1]).all() and np.isfinite(second).all()


def test_nothing_overlaps(metrics_path):
    figure = draw_learning_curves(read_curves(metrics_path))
    figure.draw_without_rendering()
    boxes = [artist.get_tightbbox() for artist in (*figure.axes, *figure.legends)]
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)


def test_the_picture_is_written(metrics_path, tmp_path):
    (path,) = plot_learning_curves(metrics_path, tmp_path / "figures")
    assert path == tmp_path / "figures/learning_curves.png"
    picture = imread(path)
    assert picture.shape[1] > 1000 and len(np.unique(picture @ [1, 2, 3, 4])) > 100


def test_nothing_to_draw_is_told(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with pytest.raises(UserError, match="not there"):
        plot_learning_curves(path, tmp_path)
    path.touch()
    with pytest.raises(UserError, match="holds no event"):
        plot_learning_curves(path, tmp_path)
