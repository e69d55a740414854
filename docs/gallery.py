"""Make the gallery, docs/gallery.md, from runs of a minute or two each: one figure of each kind.

    make gallery

Runs that are there already, in runs/gallery, are not trained again.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

RUNS, HERE = Path("runs/gallery"), Path(__file__).parent
TRAINED = {
    "lstm": ["+experiment=copy_task", "seeds=3", "trainer.steps=400"],
    "speller": ["+experiment=seq2seq_attention", "trainer.steps=1000"],
    "transformer": ["+experiment=seq2seq_transformer", "trainer.steps=1000"],
    "captioner": ["+experiment=captioning", "trainer.steps='${epochs:3}'"],
}


class Picture(NamedTuple):
    """A figure of the gallery: of which run, what was asked of it, where the figure lies there, and what it shows."""

    title: str
    run: str
    command: str
    file: str
    text: str


PICTURES = [
    Picture(
        "Learning curves",
        "lstm",
        "",
        "figures/learning_curves.png",
        "Every run leaves them: each metric of training and of the evaluation sets, the mean over seeds and its 95 % "
        "interval. Here an LSTM that copies a token over 50 steps.",
    ),
    Picture(
        "Gradients through time",
        "lstm",
        "analysis=gradients",
        "analyses/gradients/gradients.png",
        "How much of the last loss reaches each step before, and the singular values of the product of Jacobians. "
        "Studied in [experiments/vanishing_gradients](../experiments/vanishing_gradients/README.md).",
    ),
    Picture(
        "Gates and states",
        "lstm",
        "analysis=gates",
        "analyses/gates/values_layer_1.png",
        "Each unit's gates, candidate and state along a row; there is also a page to point at, `gates.html`.",
    ),
    Picture(
        "Saturation of gates",
        "lstm",
        "analysis=gates",
        "analyses/gates/saturation.png",
        "How often each unit's gates are shut, and how often open.",
    ),
    Picture(
        "Length generalisation",
        "lstm",
        "analysis=length_generalisation",
        "analyses/length_generalisation/length_generalisation.png",
        "The metrics on rows shorter and longer than those of training.",
    ),
    Picture(
        "Cost",
        "lstm",
        "analysis=cost",
        "analyses/cost/cost.png",
        "Parameters by part, operations counted and by formula, and how time, memory and state grow with the length. "
        "Studied in [experiments/cost_crossover](../experiments/cost_crossover/README.md).",
    ),
    Picture(
        "Alignment",
        "speller",
        "analysis=attention",
        "analyses/attention/decoder_source_attention.png",
        "Where a decoder with additive attention looks in its source while it writes it backwards.",
    ),
    Picture(
        "Attention by layer and head",
        "transformer",
        "analysis=attention",
        "analyses/attention/encoder_self_attention.png",
        "Self-attention of a Transformer; `attention.html` lets one choose layer and head and point at tokens.",
    ),
    Picture(
        "Attention rolled out",
        "transformer",
        "analysis=attention",
        "analyses/attention/encoder_self_attention_rolled_out.png",
        "Heads averaged, and layers multiplied with their residuals.",
    ),
    Picture(
        "Heads",
        "transformer",
        "analysis=attention",
        "analyses/attention/heads.png",
        "How sharp each head is and how far it looks.",
    ),
    Picture(
        "Attention over a picture",
        "captioner",
        "analysis=attention",
        "analyses/attention/decoder_source_attention_over_picture.png",
        "Where a captioner looks for each word.",
    ),
]


def call(module: str, *overrides: str) -> None:
    subprocess.run([sys.executable, "-m", module, *overrides], check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    for name, overrides in TRAINED.items():
        print(f"runs/gallery/{name}", flush=True)
        call("seqlab.train", *[o.replace("'", "") for o in overrides], "logger=[]", f"hydra.run.dir={RUNS / name}")
    done = set()
    pictures = HERE / "gallery"
    pictures.mkdir(exist_ok=True)
    lines = ["# Gallery", "", "One figure of each kind, all made by `make gallery`.", ""]
    for picture in PICTURES:
        look = f"python -m seqlab.analyze run={RUNS / picture.run} {picture.command}"
        if picture.command and (picture.run, picture.command) not in done:
            print(look, flush=True)
            call("seqlab.analyze", f"run={RUNS / picture.run}", picture.command)
            done.add((picture.run, picture.command))
        name = picture.title.lower().replace(" ", "_")
        shutil.copyfile(RUNS / picture.run / picture.file, pictures / f"{name}.png")
        train = f"python -m seqlab.train {' '.join(TRAINED[picture.run])} hydra.run.dir={RUNS / picture.run}"
        commands = [train, *([look] if picture.command else [])]
        told = ["```bash", *commands, "```", "", f"![{picture.title}](gallery/{name}.png)", ""]
        lines += [f"## {picture.title}", "", picture.text, "", *told]
    (HERE / "gallery.md").write_text("\n".join(lines), encoding="utf-8")
    print(HERE / "gallery.md")


if __name__ == "__main__":
    main()
