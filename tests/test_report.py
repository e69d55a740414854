"""The report over runs: it says what the runs' own files say, of every run, and its page can be read and sorted."""

import csv
import dataclasses
import html
import itertools
import json
import math
import re
import shutil

import pytest
import yaml
from matplotlib.figure import Figure

from seqlab.analysis.report.comparison import MARKERS, arrange_series, choose_axes, draw_comparison
from seqlab.analysis.report.report import make_report
from seqlab.analysis.report.runs import find_runs, name_runs, read_run
from seqlab.analysis.report.settings import Setting, differing_settings, find_setting
from seqlab.analysis.report.table import make_columns, metric_names
from seqlab.files import read_json
from seqlab.report import report
from seqlab.training.loggers.jsonl import JsonlLogger, read_events
from seqlab.training.summary import summarise, write_summary
from seqlab.types import Event, Run, UserError

LENGTHS = (5, 7, 11)
R = 3


def write_run(directory, *, cell="GRU", length=5, seed=0, seeds=R, changed=(), summary=True, last_loss=None):
    """Write a run's record and summary as training does; the second of its three evaluations is the best."""
    directory.mkdir(parents=True)
    gate = {"GRU": {"reset": "before"}, "RNN": {"activation": "tanh"}}[cell]
    config = {
        "model": {
            "_target_": "seqlab.models.classifier.Classifier",
            "encoder": {"cell": {"_target_": f"a.{cell}"} | gate},
        },
        "task": {"_target_": "seqlab.tasks.copy_first.CopyFirst", "length": length},
        "schedule": {"steps": 3 * length},
        "seed": seed,
        "seeds": seeds,
        "logger": {"jsonl": {"number": length}},
        "trainer": {"steps": 39, "monitor": "validation/loss", "mode": "min", "span": 3 * length},
    }
    (directory / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    (directory / "overrides.yaml").write_text(yaml.safe_dump([f"encoder/cell={cell.lower()}", f"task.length={length}"]))
    logger = JsonlLogger()
    logger.start(Run(directory, "", "", (), "", config, 39, seeds, None))
    events = []
    for k, step in enumerate((13, 26, 39)):
        for split in ("train", "validation", "test"):
            loss = [(1 + (k - 1) ** 2 + 0.1 * (seed + r)) * length / 7 / len(split) for r in range(seeds)]
            accuracy = [0.25 * (1 + r) for r in range(seeds)]
            if step == 39 and last_loss is not None:
                loss[0] = last_loss
            values = {"loss": loss} | ({"accuracy": accuracy} if split == "test" else {})
            events.append(Event(step, split, values, {"steps_per_second": 11.5 + k}, 0.0))
            logger.log(events[-1])
    logger.finish("completed", {})
    if summary:
        baseline = {"name": "guess", "measured": {"test": {"accuracy": 1 / 3}}}
        told = summarise(
            events, status="completed", message="all 39 steps done", steps=39, monitor="validation/loss", mode="min",
            skipped_R=[0] * seeds, parameters=1234, compile_seconds=1.5, wall_seconds=71.25, baseline=baseline,
        )  # fmt: skip
        write_summary(directory / "summary.json", told)
    return directory


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """A multirun of six runs that went well, a diverged one, and four that did not: each ended in another way."""
    sweep = tmp_path_factory.mktemp("sweep")
    for job, (cell, length) in enumerate(itertools.product(("RNN", "GRU"), LENGTHS)):
        write_run(sweep / str(job), cell=cell, length=length)
    write_run(sweep / "6", length=13, last_loss=math.nan)
    unfinished = write_run(sweep / "7", length=17, summary=False)
    with (unfinished / "metrics.jsonl").open("a") as file:
        file.write('{"step": 52, "spl')
    (write_run(sweep / "8", length=19) / "summary.json").write_text('{"status": ')
    (sweep / "9").mkdir()
    (sweep / "9" / "overrides.yaml").write_text(yaml.safe_dump(["encoder/cell=gru", "task.length=0"]))
    write_summary(sweep / "9" / "summary.json", {"status": "failed", "message": "length=0: <expected> 1 or more."})
    (sweep / "10").mkdir()
    (sweep / "multirun.yaml").write_text("")
    return sweep


@pytest.fixture(scope="module")
def written(sweep):
    return {path.suffix: path for path in make_report([sweep], sweep)}


@pytest.fixture(scope="module")
def lines(written):
    with written[".csv"].open() as file:
        return list(csv.DictReader(file))


def read_runs(*directories):
    paths = find_runs(directories)
    return [read_run(path, name) for path, name in zip(paths, name_runs(paths), strict=True)]


def test_every_job_has_a_row_that_says_how_it_ended(lines, written):
    assert [line["run"] for line in lines] == [str(job) for job in range(11)]
    states = ["completed"] * 7 + ["unfinished", "unreadable", "failed", "lost"]
    assert [line["status"] for line in lines] == states
    assert "its record reaches step 39 of 39" in lines[7]["message"]
    assert "summary.json cannot be read" in lines[8]["message"]
    page = written[".html"].read_text()
    assert "length=0: &lt;expected&gt; 1 or more." in page and "<expected>" not in page
    assert page.count("<tr><th class=name") == 11


def test_values_are_those_of_the_record_to_the_last_bit(sweep, lines, written):
    page, n_compared = written[".html"].read_text(), 0
    for line in lines[:8]:
        events = read_events(sweep / line["run"] / "metrics.jsonl")
        for when, step in (("final", 39), ("best", 26)):
            for event in (event for event in events if event.step == step):
                for metric, values in event.values.items():
                    name = f"{when} {event.split}/{metric}"
                    told = [float(value) for value in line[f"{name} values"].split()]
                    assert all(a == b or (a != a and b != b) for a, b in zip(told, values, strict=True))
                    if math.isfinite(float(line[name])) and event.split != "train":
                        assert f'data-value="{line[name]}"' in page
                    n_compared += 1
    assert n_compared == 8 * 2 * 4


def test_means_are_those_of_the_summary_to_the_last_bit(sweep, lines):
    for line in lines[:6]:
        summary = read_json(sweep / line["run"] / "summary.json")
        for when in ("best", "final"):
            for split, named in summary[when].items():
                for metric, measured in named.items():
                    assert float(line[f"{when} {split}/{metric}"]) == measured["mean"]
                    assert float(line[f"{when} {split}/{metric} half_width"]) == measured["half_width"]
        for key in ("parameters", "steps_per_second", "compile_seconds", "wall_seconds"):
            assert float(line[key]) == summary[key]
        assert float(line["baseline test/accuracy"]) == summary["baseline"]["measured"]["test"]["accuracy"]


def test_an_interval_by_hand(lines, written):
    # 0.25, 0.5, 0.75: s = 0.25, and t of two degrees of freedom at 97.5 % is 4.302652730.
    assert float(lines[0]["best test/accuracy"]) == 0.5
    assert float(lines[0]["best test/accuracy half_width"]) == pytest.approx(4.302652730 * 0.25 / 3**0.5, rel=1e-9)
    assert "| 0.500 ± 0.621 |" in written[".md"].read_text()
    assert ">0.500 ± 0.621</td>" in written[".html"].read_text()


def test_a_value_that_is_not_finite_is_told(lines, written):
    assert lines[6]["final test/loss"] == "nan" and lines[6]["final test/loss values"].startswith("nan ")
    assert "not finite in 1 of 3" in written[".html"].read_text()


def test_what_a_run_lacks_is_empty(lines):
    """For programs: pandas reads a column of numbers as numbers."""
    assert lines[9]["model.encoder.cell"] == "gru" and lines[10]["model.encoder.cell"] == ""
    assert all(value not in ("–", "None") for line in lines for value in line.values())


def test_the_page_needs_nothing_beside_it(written):
    page = written[".html"].read_text()
    for outside in ("http:", "https:", 'src="/', "@import", '<link rel="stylesheet'):
        assert outside not in page.replace("http://www.w3.org", ""), outside


def test_what_differs_is_told_and_nothing_else(sweep):
    settings = differing_settings(read_runs(sweep))
    assert [(setting.key, setting.label, setting.also) for setting in settings] == [
        ("model.encoder.cell", "cell", ()),
        ("task.length", "length", ()),
        ("schedule.steps", "steps", ("trainer.span",)),
    ]
    assert settings[0].values[:7] == ("RNN",) * 3 + ("GRU",) * 4
    # A job that failed before it had a config is known by its overrides.
    assert settings[0].values[9:] == ("gru", "–") and settings[1].values[9:] == ("0", "–")


def test_classes_of_one_name_are_told_in_full(tmp_path):
    for job in range(2):
        run = write_run(tmp_path / str(job))
        text = (run / "config.yaml").read_text()
        (run / "config.yaml").write_text(text.replace("a.GRU", f"package_{job}.GRU"))
    assert differing_settings(read_runs(tmp_path))[0].values == ("package_0.GRU", "package_1.GRU")


def test_a_key_that_a_run_lacks_is_a_difference_unless_its_class_is_another(tmp_path):
    for job in range(2):
        run = write_run(tmp_path / str(job), length=job + 1)
        config = yaml.safe_load((run / "config.yaml").read_text())
        if job:
            del config["model"]["encoder"]["cell"]["reset"]
        config["task"]["length"] = (1, 1.0)[job]  # one number, in two ways
        config["schedule"] = {"_target_": f"a.{'xy'[job]}"} | ({"warmup": 5} if job else {})
        (run / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    runs = read_runs(tmp_path)
    values = {setting.key: setting.values for setting in differing_settings(runs)}
    assert values["model.encoder.cell.reset"] == ("before", "–")
    assert values["schedule"] == ("x", "y")
    assert values.keys() == {"model.encoder.cell.reset", "schedule", "trainer.span"}


def test_a_setting_is_found_by_what_tells_it_from_others(sweep):
    runs = read_runs(sweep)
    settings = differing_settings(runs)
    for name in ("cell", "model/cell", "encoder.cell", "model.encoder.cell"):
        assert find_setting(name, runs, settings) is settings[0]
    assert find_setting("trainer.span", runs, settings) is settings[2]


def test_runs_that_differ_in_their_seeds_are_one_point(tmp_path):
    for job, (length, seed) in enumerate(itertools.product((5, 7), (0, 2, 3))):
        write_run(tmp_path / str(job), length=length, seed=seed, seeds=2)
    runs = read_runs(tmp_path)
    settings = differing_settings(runs)
    x, hue = choose_axes(runs, settings)
    assert (x.key, hue) == ("task.length", None)
    (series,) = arrange_series(runs, settings, x, hue)
    # Seeds 0 … 4: seed 3 was run twice and counts once.
    point = series.measured("7", "test/loss")
    assert point.values == pytest.approx([(1 + 0.1 * seed) / 4 for seed in range(5)])
    s = 0.1 / 4 * math.sqrt(2.5)
    assert point.half_width == pytest.approx(2.776445105 * s / math.sqrt(5), rel=1e-9)


def test_runs_that_differ_in_more_are_not_pooled(sweep):
    runs = [run for run in read_runs(sweep) if run.best]
    settings = differing_settings(runs)
    length = find_setting("length", runs, settings)
    series = arrange_series(runs, settings, length, None)
    assert [each.label for each in series] == ["cell RNN", "cell GRU"]
    assert all(len(there) == 1 for each in series for there in each.runs_at.values())


def test_no_two_series_look_alike(sweep):
    runs = [dataclasses.replace(run) for run in read_runs(sweep / "0") for _ in range(30)]
    x = Setting("task.length", "length", ("5",) * 30)
    width = Setting("model.width", "width", tuple(map(str, range(30))))
    tied = Setting("model.tied", "tied", ("true", "false") * 15)
    for settings, hue in (([x, width], None), ([x, width, tied], tied)):
        series = arrange_series(runs, settings, x, hue)
        looks = {(each.colour, each.marker) for each in series}
        assert len(series) == 30 and len(looks) == (30 if hue is None else 2 * len(MARKERS))


def test_baselines_are_those_of_their_tasks(sweep, monkeypatch):
    """They are joined where the points of a series are, and never from one task to another."""
    [run] = read_runs(sweep / "0")
    told = [("Copy", "1", 0.2), ("Copy", "2", 0.25), ("Parity", "1", 0.5), ("Parity", "2", 0.625)]
    runs = [dataclasses.replace(run, baseline={"test/accuracy": value}) for *_, value in told]
    task, width = (Setting(key, key, tuple(row[k] for row in told)) for k, key in enumerate(("task", "width")))

    def baselines(x, hue):
        axis = Figure().subplots()
        monkeypatch.setattr("seqlab.analysis.report.comparison.draw", lambda label, paint: paint(axis))
        draw_comparison("test/accuracy", x, arrange_series(runs, [task, width], x, hue))
        return [(line.get_linestyle(), [*line.get_ydata()]) for line in axis.lines if line.get_markersize() == 14]

    assert baselines(width, task) == [(":", [0.2, 0.25]), (":", [0.5, 0.625])]
    assert baselines(task, width) == [("None", [0.2, 0.5]), ("None", [0.25, 0.625])]


FILES = ("config.yaml", "summary.json", "metrics.jsonl", "overrides.yaml")


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", [b"7\n", b"null\n", b'"x"\n', b"\xff\x00\n", b"a: {b\n"])
def test_a_damaged_file_is_a_row_that_says_so(tmp_path, file, damage):
    run = write_run(tmp_path / "run")
    (run / file).write_bytes(damage)
    (told,) = read_runs(tmp_path)
    assert told.status == "unreadable" and str(run) in told.message
    columns = make_columns([told], differing_settings([told]), metric_names([told]))
    assert [cell.text for column in columns for cell in column.cells if column.label == "status"] == ["unreadable"]


def test_a_record_whose_replicas_change_is_a_row_that_says_so(tmp_path):
    run = write_run(tmp_path / "run")
    events = read_events(run / "metrics.jsonl")
    logger = JsonlLogger()
    logger.start(Run(run, "", "", (), "", {}, 39, R, 39))
    logger.log(dataclasses.replace(events[0], step=52, values={"loss": [1.0]}))
    logger.finish("completed", {})
    assert read_runs(tmp_path)[0].status == "unreadable"


def test_any_text_may_stand_at_an_axis(sweep):
    told = ('a "b" $x_{', "<i>$", "\\frac$&")
    runs = read_runs(*(sweep / str(job) for job in range(3)))
    x = Setting("task.word", "word", told)
    svg = draw_comparison("test/loss", x, arrange_series(runs, [x], x, None))
    assert [html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)][:3] == list(told)


@pytest.mark.parametrize("file", FILES)
def test_no_file_is_needed(tmp_path, file):
    run = write_run(tmp_path / "run")
    for text in (b"", b"{}\n", (run / file).read_bytes()[:50], None):
        (run / file).unlink() if text is None else (run / file).write_bytes(text)
        runs = read_runs(tmp_path)
        assert make_columns(runs, differing_settings(runs), metric_names(runs))[0].cells[0].text == "run"


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["metric=test/acuracy"], "metric=test/acuracy: no run has measured it; did you mean test/accuracy"),
        (["x=lenght"], "lenght: no config of these runs has this key; did you mean length?"),
        (["x=task.lenght"], "task.lenght: no config of these runs has this key; did you mean task.length?"),
        (["x=modle/cell"], "modle/cell: no config of these runs has this key; did you mean model/cell?"),
        (["x=beta"], "beta: no config of these runs has this key; there are cell, length, span, steps."),
        (["hue=task"], "task is seqlab.tasks.copy_first.CopyFirst in all runs that have it"),
        (["x=cell", "hue=model/cell"], "x=cell and hue=model/cell are the same setting, model.encoder.cell"),
        (["hu=cell"], "hu=cell: there is no option hu; did you mean hue"),
        (["x="], "x= has no value"),
    ],
)
def test_a_wrong_argument_is_told_in_a_sentence(sweep, arguments, sentence):
    with pytest.raises(UserError) as raised:
        report([str(sweep), *arguments])
    assert str(raised.value).startswith(sentence)


def test_a_wrong_directory_is_told_in_a_sentence(sweep, tmp_path):
    with pytest.raises(UserError, match=f"did you mean {sweep.name}"):
        report([str(sweep.with_name(sweep.name + "x"))])
    with pytest.raises(UserError, match="holds no run"):
        report([str(tmp_path)])
    with pytest.raises(UserError, match="Of which runs"):
        report(["x=length"])


def test_one_metric_against_a_chosen_setting(sweep, tmp_path):
    report([str(sweep / "0"), str(sweep / "3"), "x=model/cell", "metric=train/loss", f"out={tmp_path / 'new' / 'out'}"])
    text = (tmp_path / "new" / "out" / "report.md").read_text()
    assert "## Against model.encoder.cell" in text and "| cell | runs | seeds | train/loss |" in text
    link = text.split("](<")[1].split(">)")[0]
    assert (tmp_path / "new" / "out" / link).resolve() == sweep / "0"


def column(browser, heading):
    """The texts of a column of the table of runs, from above."""
    return browser.evaluate(
        f"""(() => {{ const at = [...document.querySelectorAll("th[data-column]")]
        .find((th) => th.textContent === {json.dumps(heading)}).dataset.column;
        const rows = [...document.querySelector("table.sortable").tBodies[0].rows];
        return rows.map((row) => row.cells[at].textContent) }})()"""
    )


def click(browser, heading):
    browser.evaluate(
        f"""[...document.querySelectorAll("th[data-column] button")]
        .find((button) => button.textContent === {json.dumps(heading)}).click()"""
    )


def test_the_page_sorts_by_a_click(browser, written):
    browser.open(written[".html"], width=1280)
    assert column(browser, "run") == [str(job) for job in range(11)]
    click(browser, "length")
    assert column(browser, "length") == ["0", "5", "5", "7", "7", "11", "11", "13", "17", "19", "–"]
    click(browser, "length")
    assert column(browser, "length") == ["19", "17", "13", "11", "11", "7", "7", "5", "5", "0", "–"]
    click(browser, "final")
    known = [float(text.split()[0]) for text in column(browser, "final") if text[0].isdigit()]
    assert len(known) == 7 and known == sorted(known)
    assert {*column(browser, "final")[7:]} == {"not finite in 1 of 3", "–"}
    click(browser, "run")
    assert column(browser, "run") == [str(job) for job in range(11)]
    assert browser.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_a_phone_in_light_and_dark(browser, written, scheme):
    browser.open(written[".html"], width=390, scheme=scheme)
    assert browser.evaluate("[innerWidth, document.documentElement.scrollWidth]") == [390, 390]
    wide = """[...document.body.querySelectorAll("*")].filter((e) => !e.closest("table") && !e.closest("svg *"))
        .filter((e) => { const box = e.getBoundingClientRect(); return box.left < 0 || box.right > 390 })
        .map((e) => e.outerHTML.slice(0, 80))"""
    assert browser.evaluate(wide) == []
    # Text stands out from the page by the 7 : 1 of the WCAG's strictest level, in the figures too.
    contrast = """(() => { const light = (colour) => { const c = colour.match(/\\d+/g).slice(0, 3).map((v) => v / 255)
        .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2] };
        const page = light(getComputedStyle(document.body).backgroundColor);
        const drawn = getComputedStyle(document.querySelector("svg text")).fill;
        const colours = [getComputedStyle(document.body).color, drawn];
        return colours.map(light).map((l) => (Math.max(l, page) + 0.05) / (Math.min(l, page) + 0.05)) })()"""
    assert min(browser.evaluate(contrast)) > 7
    is_dark = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every((level) => level < 64)"
    assert browser.evaluate(is_dark) == (scheme == "dark")
    assert browser.complaints == []


def test_a_run_that_is_pointed_at_stands_out(browser, written):
    browser.open(written[".html"], width=1280)
    browser.evaluate("document.querySelectorAll('.curves button')[1].dispatchEvent(new Event('pointerenter'))")
    opacities = browser.evaluate(
        """Object.fromEntries([...document.querySelectorAll(".curves .grid g[data-series]")]
        .map((g) => [g.dataset.series, Number(getComputedStyle(g).opacity)]))"""
    )
    assert opacities.pop("1") == 1 and len(opacities) == 8
    assert set(opacities.values()) == {0.08}


def test_a_run_shows_the_last_look_of_each_analysis(sweep, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(find_runs([sweep])[0], run)
    places = "gates/step_000900/a", "gates/step_1000000/a", "gates/b", "gates/step_000900/b", "gradients/step_000000/c"
    for place in places:
        path = run / "analyses" / f"{place}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    shown = [path.relative_to(run / "analyses") for path in read_run(run, "run").figures() if "analyses" in path.parts]
    assert [str(path) for path in shown] == ["gates/b.png", "gates/step_1000000/a.png", "gradients/step_000000/c.png"]


def test_choices_of_one_class_are_told_apart(tmp_path):
    """And what nobody who measures depends on is no difference."""
    for job, cell in enumerate(("gru", "gru_after", "gru")):
        run = write_run(tmp_path / str(job))
        (run / "overrides.yaml").write_text(f"- model/cell={cell}\n- trainer.profile=true\n")
        config = yaml.safe_load((run / "config.yaml").read_text())
        config |= {"analysis": {"gates": {"rows": job}}} if job else {}
        config["trainer"]["profile"] = job > 0
        (run / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    settings = {setting.key: setting.values for setting in differing_settings(read_runs(tmp_path))}
    assert settings["model.encoder.cell"] == ("gru", "gru_after", "gru")
    assert not [key for key in settings if "analysis" in key or "profile" in key]
