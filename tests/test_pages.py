"""The pages of attention and gates: what is pointed at is told, with the right number, offline, on a phone too."""

import json

import numpy as np
import pytest

from seqlab.analysis.pages.attention import describe_layer, write_attention
from seqlab.analysis.pages.gates import write_gates
from seqlab.analysis.pages.page import to_script

NASTY = ["</script>", "<b>&amp;", '"', "a\\n", "ß", "’", "\u2028"]
N = len(NASTY)
WRITTEN = ["el", "gato", "<eos>"]
H, F = 2, 5


def draw_weights(T, S):
    w = np.random.default_rng(0).dirichlet(np.ones(S), (H, T))
    w[1] = w[1, :, ::-1]
    return w


W_SELF, W_SOURCE = draw_weights(N, N), draw_weights(3, N)
VALUES = np.random.default_rng(1).uniform(0.1, 0.9, (N, F))
STATES = np.random.default_rng(2).uniform(-2, 2, (N, F))


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The two pages as files."""
    folder = tmp_path_factory.mktemp("pages")
    layers = [
        describe_layer("encoder layer 1", W_SELF, NASTY, NASTY, True),
        describe_layer("decoder", W_SOURCE, WRITTEN, NASTY, False),
    ]
    gates = {"layer 1": {"h": STATES}, "layer 2": {"f": VALUES, "C": STATES}}
    tokens = {"layer 1": NASTY, "layer 2": NASTY[::-1]}
    texts = {
        "attention": write_attention(layers, "row 0"),
        "gates": write_gates(gates, {"layer 1": (), "layer 2": ("f",)}, tokens, N, F, "row 0"),
    }
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in texts}


def test_nothing_ends_the_data_early():
    assert json.loads(to_script(NASTY)) == NASTY and "<" not in to_script(NASTY)


def test_a_page_needs_nothing_beside_it(pages):
    for path in pages.values():
        page = path.read_text(encoding="utf-8")
        for outside in ("http:", "https:", "src=", "@import", '<link rel="stylesheet'):
            assert outside not in page, outside


def press(browser, label):
    browser.evaluate(
        f"[...document.querySelectorAll('.choices button')].find((b) => b.textContent === {json.dumps(label)}).click()"
    )


def choose_layer(browser, n):
    browser.evaluate(
        f"(() => {{ const s = document.querySelector('select'); s.value = '{n}';"
        " s.dispatchEvent(new Event('change')) })()"
    )


def point(browser, row, column):
    """What is told of a cell that is pointed at."""
    return browser.evaluate(
        f"""(() => {{ const canvas = document.querySelector("canvas"), box = canvas.getBoundingClientRect();
        const [x, y] = document.querySelector("main").middle({row}, {column});
        canvas.dispatchEvent(new PointerEvent("pointermove", {{ clientX: box.left + x, clientY: box.top + y }}));
        return document.querySelector("output").textContent }})()"""
    )


def weights_of_line(browser, n=0):
    return browser.evaluate(
        f"""[...document.querySelectorAll(".line")[{n}].children]
        .map((e) => Number(getComputedStyle(e).getPropertyValue("--weight")) * (e.matches(".below") ? -1 : 1))"""
    )


def point_token(browser, t, n=0):
    browser.evaluate(
        f"document.querySelectorAll('.line')[{n}].children[{t}].dispatchEvent(new PointerEvent('pointerenter'))"
    )


def test_attention_is_told_by_layer_and_head(browser, pages):
    browser.open(pages["attention"], width=1280)
    told = {}
    for head in (0, 1):
        press(browser, str(head + 1))
        told[head] = point(browser, 2, 1)
        assert told[head] == f"“{NASTY[2]}” (2) looks at “{NASTY[1]}” (1): {W_SELF[head, 2, 1]:.4f}"
        point_token(browser, 3)
        np.testing.assert_allclose(weights_of_line(browser), np.sqrt(W_SELF[head, 3]), atol=0.01)
    press(browser, "average")
    assert point(browser, 2, 1).endswith(f": {W_SELF[:, 2, 1].mean():.4f}")
    choose_layer(browser, 1)
    press(browser, "1")
    assert point(browser, 1, 6).endswith(f": {W_SOURCE[0, 1, 6]:.4f}")
    point_token(browser, 2)
    np.testing.assert_allclose(weights_of_line(browser, 1), np.sqrt(W_SOURCE[0, 2]), atol=0.01)
    point_token(browser, 4, 1)
    np.testing.assert_allclose(weights_of_line(browser, 0), np.sqrt(W_SOURCE[0, :, 4]), atol=0.01)
    assert browser.complaints == []


def test_how_much_of_a_long_row_is_shown_is_told(browser, tmp_path):
    names, w = [f"t{k}" for k in range(150)], np.full((1, 131, 150), 1 / 150)
    layers = [
        describe_layer("encoder layer 1", w[:, :, :131], names[:131], names[:131], True),
        describe_layer("decoder", w, names[:131], names, False),
        describe_layer("decoder of few", w[:, :3], names[:3], names, False),
        describe_layer("short", w[:, :128, :128], names[:128], names[:128], True),
    ]
    (tmp_path / "long.html").write_text(write_attention(layers, "row 0"), encoding="utf-8")
    browser.open(tmp_path / "long.html", width=1280)
    told = []
    for n in range(len(layers)):
        choose_layer(browser, n)
        told.append(browser.evaluate("document.querySelector('main > p').innerText"))
        assert browser.evaluate("document.querySelectorAll('.line:last-child .token').length") == 128
    assert told == [
        "Shown: the first 128 of 131 steps. What lies beyond is not drawn.",
        "Shown: the first 128 of 131 steps that look and the first 128 of 150 steps that are looked at. What lies "
        "beyond is not drawn.",
        "Shown: the first 128 of 150 steps that are looked at. What lies beyond is not drawn.",
        "",
    ]
    assert browser.complaints == []


def test_what_is_looked_at_most_is_told_of_whole_rows(browser, tmp_path):
    names = [f"t{k}" for k in range(150)]
    w = np.random.default_rng(3).dirichlet(np.ones(150), (H, 150))
    w[:, 5, [140, 2, 3]], w[:, 145, 7] = [2, 0.7, 0.6], [3, 1]
    layers = [
        describe_layer("encoder layer 1", w, names, names, True),
        describe_layer("decoder", w, names, names, False),
    ]
    (tmp_path / "most.html").write_text(write_attention(layers, "row 0"), encoding="utf-8")
    browser.open(tmp_path / "most.html", width=1280)
    for n in (0, 1):
        choose_layer(browser, n)
        point_token(browser, 5)
        told = browser.evaluate("document.querySelector('output').textContent")
        assert told == "“t5” (5) looks most at “t140” (140) 2.000 (not shown), “t2” (2) 0.700, “t3” (3) 0.600"
    point_token(browser, 7, 1)
    told = browser.evaluate("document.querySelector('output').textContent")
    assert told.startswith("“t7” (7) is looked at most by “t145” (145) 3.000 (not shown), ")
    press(browser, "average")
    point_token(browser, 7, 1)
    told = browser.evaluate("document.querySelector('output').textContent")
    assert told.startswith("“t7” (7) is looked at most by “t145” (145) 2.000 (not shown), "), told
    assert browser.complaints == []


def test_gates_are_told_by_layer_and_unit(browser, pages):
    browser.open(pages["gates"], width=1280)
    by_h = np.argsort(-STATES.mean(0))
    assert point(browser, 1, 2) == f"unit {by_h[1]} at “{NASTY[2]}” (2): h = {STATES[2, by_h[1]]:.4f}"
    reached = np.clip(STATES[:, by_h[1]] / np.quantile(np.abs(STATES), 0.95), -1, 1)
    np.testing.assert_allclose(weights_of_line(browser), reached, atol=1e-3)
    notes = "[...document.querySelectorAll('main > p')].slice(0, 2).map((p) => p.textContent)"
    assert browser.evaluate(notes) == [
        "Beside each step stands the input that is read at the step.",
        f"Shown: its {F} units in the order of the mean of h, the greatest at the top.",
    ]
    choose_layer(browser, 1)
    by_f = np.argsort(-VALUES.mean(0))
    assert point(browser, 3, 0) == f"unit {by_f[3]} at “{NASTY[-1]}” (0): f = {VALUES[0, by_f[3]]:.4f}"
    deepest = "document.querySelector('main > p:nth-last-of-type(1)').textContent"
    assert browser.evaluate(deepest) == "The deepest colour is that of |f| = 1.00 and of all beyond."
    press(browser, "C")
    assert point(browser, 4, 0).endswith(f": C = {STATES[0, by_f[4]]:.4f}")
    limit = np.quantile(np.abs(STATES), 0.95)
    assert 1 < limit < np.abs(STATES).max()
    assert browser.evaluate(deepest) == f"The deepest colour is that of |C| = {limit:.2f} and of all beyond."
    assert browser.complaints == []


def test_how_many_steps_and_units_are_shown_is_told(browser, tmp_path):
    page = write_gates(
        {"decoder layer 1": {"h": STATES}}, {"decoder layer 1": ()}, {"decoder layer 1": NASTY}, 4, 3, ""
    )
    (tmp_path / "few.html").write_text(page, encoding="utf-8")
    browser.open(tmp_path / "few.html", width=1280)
    assert browser.evaluate("[...document.querySelectorAll('main > p')].map((p) => p.textContent)") == [
        "Beside each step stands the target that is said at the step. Shown: the first 4 of 7 steps. What lies beyond "
        "is not drawn.",
        "Shown: 3 of its 5 units, evenly spaced in the order of the mean of h, the greatest at the top.",
        f"The deepest colour is that of |h| = {np.quantile(np.abs(STATES[:4]), 0.95):.2f} and of all beyond.",
    ]
    assert browser.complaints == []


PIXELS = "document.querySelector('canvas').toDataURL()"


@pytest.mark.parametrize("name, other", [("attention", "2"), ("gates", "C")])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_fits_a_phone_and_another_choice_is_another_map(browser, pages, name, other, scheme):
    browser.open(pages[name], width=380, scheme=scheme)
    assert browser.evaluate("[innerWidth, document.documentElement.scrollWidth]") == [380, 380]
    choose_layer(browser, 1)
    before = browser.evaluate(PIXELS)
    press(browser, other)
    assert browser.evaluate(PIXELS) != before
    is_dark = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every((level) => level < 64)"
    assert browser.evaluate(is_dark) == (scheme == "dark")
    assert browser.complaints == []
