"""Every shape of a task on data, by at least two models each, beside the baseline that must be beaten.

    python experiments/task_shapes/study.py [NAME …]

trains what has not been trained yet (all, or the tasks that are named) into runs/task_shapes, and prints the table of
README.md. `make data` first.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from seqlab.files import read_json
from seqlab.training.summary import format_measured

RUNS = Path("runs/task_shapes")
SEEDS = 3


class Row(NamedTuple):
    """A model on a task: the metric of the test set that is told, and the command's own part."""

    task: str
    shape: str
    data: str
    metric: str
    model: str
    overrides: str


def rows_of(task: str, shape: str, data: str, metric: str, models: dict[str, str]) -> list[Row]:
    return [Row(task, shape, data, metric, model, overrides) for model, overrides in models.items()]


ROWS = [
    *rows_of(
        "sentiment",
        "many to one: text",
        "film reviews, 10,568",
        "accuracy",
        {
            "mean of word vectors, 128": "+experiment=bag_of_words",
            "bidirectional LSTM, 2 × 128": "+experiment=sentiment",
            "bidirectional LSTM, 64, more dropout, greatest over time": "+experiment=sentiment model/pool=max "
            "model.encoder.features=64 model.encoder.n_layers=1 model.inputs.dropout=0.6 model.dropout=0.5 "
            "trainer.steps=${epochs:6}",
            "GRU, 64": "+experiment=sentiment model/layer=recurrent model/cell=gru model.inputs.features=64 "
            "model.encoder.features=64 model.encoder.n_layers=1",
        },
    ),
    *rows_of(
        "tagging",
        "synced many to many: parts of speech",
        "Brown corpus, 57,340 sentences",
        "accuracy",
        {
            "bidirectional LSTM, 64": "+experiment=tagging",
            "LSTM, 64, one direction": "+experiment=tagging model/layer=recurrent",
        },
    ),
    *rows_of(
        "ner",
        "synced many to many: names",
        "Japanese, 500 sentences",
        "span_f1",
        {
            "bidirectional LSTM, 64": "+experiment=ner",
            "bidirectional GRU, 64": "+experiment=ner model/cell=gru",
        },
    ),
    *rows_of(
        "translation",
        "async many to many",
        "messages of git, 5,001 EN–DE",
        "bleu",
        {
            "GRU, additive attention": "+experiment=translation",
            "GRU, bilinear attention": "+experiment=translation trainer.steps=${epochs:10} "
            "model.decoder.source_attention.score._target_=seqlab.nn.scores.General",
        },
    ),
    *rows_of(
        "captioning",
        "one to many: captions",
        "drawn scenes, 5,000",
        "sequence_accuracy",
        {
            "convolutions, soft attention": "+experiment=captioning trainer.steps=500",
            "convolutions, their mean alone": "+experiment=captioning trainer.steps=500 model/decoder=fixed",
        },
    ),
    *rows_of(
        "images",
        "many to one: pictures",
        "Fashion-MNIST, 70,000",
        "accuracy",
        {
            "LeNet-5": "+experiment=lenet trainer.steps=600",
            "ViT, 2 × 64": "+experiment=vit trainer.steps=600",
        },
    ),
    *rows_of(
        "pixels",
        "many to one: pixels in a row",
        "digits of 8 × 8, 1,797",
        "accuracy",
        {
            "LSTM, 64": "+experiment=pixels",
            "GRU, 64": "+experiment=pixels model/cell=gru",
            "LSTM, 64, pixels permuted": "+experiment=pixels task.permuted=true",
        },
    ),
    *rows_of(
        "films",
        "synced many to many: frames of films",
        "moving digits",
        "accuracy",
        {
            "convolutions, GRU of 64": "+experiment=video",
            "convolutions, RNN of 64": "+experiment=video model/cell=rnn",
        },
    ),
    *rows_of(
        "clips",
        "many to one: films",
        "moving digits",
        "accuracy",
        {
            "convolutions, GRU of 64": "+experiment=video task=video_classification model=classifier "
            "trainer.steps=${epochs:16}",
            "convolutions, GRU of 64, mean over time": "+experiment=video task=video_classification model=classifier "
            "model/pool=mean trainer.steps=${epochs:16}",
        },
    ),
    *rows_of(
        "speech",
        "many to one: vectors",
        "Japanese vowels, 640",
        "accuracy",
        {
            "bidirectional LSTM, 64": "+experiment=speech",
            "GRU, 64": "+experiment=speech model/layer=recurrent model/cell=gru",
        },
    ),
    *rows_of(
        "series",
        "synced many to many: regression",
        "two periods, drawn",
        "loss",
        {
            "LSTM, 64": "+experiment=periods",
            "RNN, 64": "+experiment=periods model/cell=rnn",
        },
    ),
]


def directory_of(row: Row) -> Path:
    return RUNS / row.task / re.sub("[^a-z0-9]+", "_", row.model.lower())


def train(row: Row) -> dict[str, Any]:
    """The summary of a row; a run that is complete is left as it is."""
    words = shlex.split(row.overrides)
    command = [sys.executable, "-m", "seqlab.train", *words, f"seeds={SEEDS}", "logger=[]"]
    print(row.task, row.model, sep=": ", file=sys.stderr, flush=True)
    subprocess.run([*command, f"hydra.run.dir={directory_of(row)}"], check=True, stdout=subprocess.DEVNULL)
    return read_json(directory_of(row) / "summary.json")


def tell(row: Row, summary: dict[str, Any]) -> str:
    """The row of the table: the test set at the step that is best on the validation set."""
    written = summary.get("written")
    if written is not None and row.metric in written["measured"]["test"]:
        measured, baseline = written["measured"]["test"][row.metric], written["baseline"]
    else:
        measured, baseline = summary["best"]["test"][row.metric], summary.get("baseline")
    against = "–" if baseline is None else f"{baseline['measured']['test'][row.metric]:.3f} ({baseline['name']})"
    cells = (
        row.shape,
        row.data,
        row.model,
        row.metric,
        format_measured(measured),
        against,
        f"{summary['parameters']:,}",
        f"{summary['wall_seconds']:.0f}",
        f"`{row.overrides}`",
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    chosen = sys.argv[1:] or list(dict.fromkeys(row.task for row in ROWS))
    print("| shape | data | model | test | mean ± 95 % | baseline | parameters | s | `python -m seqlab.train` |")
    print("|---|---|---|---|---|---|---|---|---|")
    for row in sorted((row for row in ROWS if row.task in chosen), key=lambda row: chosen.index(row.task)):
        print(tell(row, train(row)), flush=True)


if __name__ == "__main__":
    main()
