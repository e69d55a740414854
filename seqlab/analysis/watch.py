"""Analyses of a model while it is trained."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import flax.linen as nn

from seqlab.analysis.findings import Analysis, Findings
from seqlab.analysis.keep import exhibit_files, keep_findings, plain
from seqlab.types import Batch, Exhibit, Params, Task, UserError

_log = logging.getLogger(__name__)


def look_first(
    analyses: Mapping[str, Analysis], model: nn.Module, params_R: Params, task: Task, batch: Batch
) -> dict[str, Findings]:
    """What analyses find at a model before it is trained, or trained on, and before anything of that is written.

    Raises   UserError of an analysis that does not fit the model, with its name.
    """
    found = {}
    for name, analysis in analyses.items():
        try:
            found[name] = analysis(model, params_R, task, batch)
        except UserError as error:
            raise UserError(f"analysis={name}: {error}") from error
        except Exception:
            continue  # It is broken, which is not the user's mistake: it is asked again, and told of.
    return found


class Watch:
    """Look at the parameters of a step with every analysis, on a set of the task, and show what each finds.

    The files of an analysis go to `directory/NAME/step_000500/`, and all of it to `show`. What they found `first`
    (`look_first`) is shown at step 0. An analysis that fails is told of in a warning and asked again at the next look:
    what is trained is not lost by it.
    """

    def __init__(
        self,
        analyses: Mapping[str, Analysis],
        model: nn.Module,
        task: Task,
        sets: Mapping[str, Batch],
        split: str,
        seeds: list[int],
        name: str,
        directory: Path,
        show: Callable[[Exhibit], None],
        first: Mapping[str, Findings],
    ) -> None:
        self._analyses = analyses
        self._model, self._task, self._batch, self._split = model, task, sets[split], split
        self._seeds, self._name, self._directory, self._show = seeds, name, directory, show
        self._first = first

    def __call__(self, step: int, params_R: Params) -> None:
        for name in self._analyses:
            try:
                exhibit = self._look(name, step, params_R)
            except Exception as error:
                reason = (str(error).strip() or "no message").splitlines()[0]
                told = f"{type(error).__name__}: {reason}"
                _log.warning("The analysis %s failed at step %d; the run goes on (%s)", name, step, told)
            else:
                self._show(exhibit)

    def _look(self, name: str, step: int, params_R: Params) -> Exhibit:
        findings = self._first.get(name) if step == 0 else None
        if findings is None:
            findings = self._analyses[name](self._model, params_R, self._task, self._batch)
        place = self._directory / name / f"step_{step:06d}"
        told = {"analysis": name, "step": step, "seeds": self._seeds, "split": self._split}
        keep_findings(findings, place, f"{self._name}, step {step}, {self._split} set", told)
        return exhibit_files(name, step, place, plain(dict(findings.followed)))
