"""Weights & Biases: online when it can be, offline when it cannot, never in the way."""

import contextlib
import logging
import os
import queue
import secrets
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from seqlab.training.loggers.scalars import name_scalars
from seqlab.types import Event, Exhibit, Run, require

MODES = ("online", "offline", "disabled")
ARTIFACT_STEPS = 5_000
ANSWER_SECONDS = 3.0
INIT_SECONDS = 10.0
FINISH_SECONDS = 30.0


class WandbLogger:
    """One W&B run for each run, its files under the run's directory; `wandb sync` uploads an offline one.

    `mode` None: what WANDB_MODE says, else online if a key is configured and the service answers, else offline. It
    asks nothing, and a service that stops answering holds nothing up: the files have it all. A run that is gone on
    with keeps its id.

    `artifact`: whether the checkpoints are kept with the run, as versions of one artifact with the aliases `best` and
    `latest`; "auto" keeps those of runs of 5,000 steps or more. What the code was is `environment` in the config.

    Raises   UserError for an unknown mode or artifact, and for mode="online" where that fails.
    """

    def __init__(
        self,
        mode: str | None = None,
        project: str = "seqlab",
        entity: str | None = None,
        artifact: bool | str = "auto",
    ) -> None:
        mode = mode or os.environ.get("WANDB_MODE")
        require(mode is None or mode in MODES, f"logger.wandb.mode is {mode!r}: expected null, {', '.join(MODES)}")
        require(
            isinstance(artifact, bool) or artifact == "auto",
            f"logger.wandb.artifact is {artifact!r}: expected true, false or auto",
        )
        self._mode, self._project, self._entity, self._artifact = mode, project, entity, artifact
        self._starting: Future[Any] | None = None

    def start(self, run: Run) -> None:
        if self._mode == "disabled":
            return
        self._run = run
        # W&B takes 2 s to import and start. They pass beside the compilation; `log` waits for what is left of them.
        pool = ThreadPoolExecutor(1, "wandb")
        self._starting = pool.submit(self._begin, run)
        pool.shutdown(wait=False)
        if self._mode == "online":
            self._starting.result()  # Whoever insists is told of a failure at the door.

    def advance(self, step: int) -> None:
        pass

    def log(self, event: Event) -> None:
        if self._starting is not None:
            self._starting.result().log({"step": event.step, **name_scalars(event)}, step=event.step)

    def show(self, exhibit: Exhibit) -> None:
        if self._starting is None:
            return
        wandb_run = self._starting.result()
        import wandb

        shown: dict[str, Any] = {name: wandb.Image(str(path)) for name, path in exhibit.figures.items()}
        shown |= {name: wandb.Html(path.read_text("utf-8"), inject=False) for name, path in exhibit.pages.items()}
        for name, table in exhibit.tables.items():
            rows = [[cell if isinstance(cell, str) else wandb.Image(cell) for cell in row] for row in table.rows]
            shown[name] = wandb.Table(columns=list(table.columns), data=rows)
        shown = {f"{exhibit.name}/{name}": what for name, what in shown.items()}
        with _staged_in(self._run.directory):
            wandb_run.log({"step": exhibit.step, **name_scalars(exhibit), **shown}, step=exhibit.step)

    def finish(self, status: str, summary: dict[str, Any]) -> None:
        if self._starting is None:
            return
        wandb_run = self._starting.result()
        try:
            measured = {
                f"{when}/{split}": named for when in ("final", "best") for split, named in summary.get(when, {}).items()
            }
            wandb_run.summary.update({"status": status, **measured})
            keeps = self._run.n_steps >= ARTIFACT_STEPS if self._artifact == "auto" else self._artifact
            if keeps and status != "failed":
                with _staged_in(self._run.directory):
                    _keep_checkpoints(wandb_run, self._run)
        finally:
            wandb_run.finish(exit_code=0 if status in ("completed", "stopped early") else 1)

    def _begin(self, run: Run) -> Any:
        import wandb

        settings = wandb.setup(wandb.Settings(silent=True)).settings  # Else it tells how it found the key,
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # and that its service takes no reports.
        key = _find_key(settings.api_key, settings.base_url)
        authorised = key is not None or settings.identity_token_file is not None
        reason = None if authorised else "no key is configured (`wandb login`)"
        if self._mode is None and authorised and not _answers(settings.base_url):
            reason = f"{settings.base_url} does not answer"
        if self._mode != "offline" and reason is None:
            try:
                wandb_run = self._init(wandb, run, "online", key)
                print(f"W&B is online: {wandb_run.url}")
                return wandb_run
            except Exception as error:
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
                wandb.teardown()  # Its process holds the id of the run that failed.
        require(self._mode != "online", f"logger.wandb.mode is online, but W&B cannot be: {reason}")
        if self._mode is None:
            print(f"W&B is offline: {reason}")
        return self._init(wandb, run, "offline", None)

    def _init(self, wandb: Any, run: Run, mode: str, key: str | None) -> Any:
        wandb_run = wandb.init(
            mode=mode,
            project=self._project,
            entity=self._entity,
            dir=run.directory,
            id=_keep_id(run.directory / "wandb" / "seqlab-run-id"),
            resume="allow",
            # Otherwise a job of a sweep gets the run of the one before it, where that did not come to its end.
            reinit="finish_previous",
            name=run.name,
            group=run.group,
            tags=run.tags,
            notes=run.notes,
            config={**run.config, "environment": run.environment},
            settings=wandb.Settings(
                # Handed over, since W&B would ask for a key at the terminal if it did not find the one found here.
                api_key=key,
                silent=True,
                console="off",
                x_disable_stats=True,
                init_timeout=INIT_SECONDS,
                finish_timeout=FINISH_SECONDS,
            ),
        )
        # A resumed run, or a sync, then draws over the updates and not over the calls.
        wandb_run.define_metric("step")
        wandb_run.define_metric("*", step_metric="step")
        return wandb_run


@contextlib.contextmanager
def _staged_in(directory: Path) -> Iterator[None]:
    """Have W&B put what it will upload into the run's directory: it would into the home, which does not go with it."""
    before = os.environ.get("WANDB_DATA_DIR")
    os.environ["WANDB_DATA_DIR"] = before or str(directory / "wandb")
    try:
        yield
    finally:
        if before is None:
            del os.environ["WANDB_DATA_DIR"]


def _keep_checkpoints(wandb_run: Any, run: Run) -> None:
    """Log the newest best and latest checkpoint as versions of an artifact; where they are of one step, as one."""
    import wandb

    newest = {
        alias: max((int(path.name) for path in (run.directory / "checkpoints" / alias).glob("*[0-9]")), default=None)
        for alias in ("best", "latest")  # W&B names the last one `latest` in any case.
    }
    same = newest["best"] == newest["latest"]
    for alias, step in newest.items():
        if step is None or (same and alias == "best"):
            continue
        artifact = wandb.Artifact(f"{run.name}-checkpoint", type="model", metadata={"step": step})
        artifact.add_dir(str(run.directory / "checkpoints" / alias / str(step)))
        wandb_run.log_artifact(artifact, aliases=["best", "latest"] if same else [alias])


def _find_key(api_key: str | None, base_url: str) -> str | None:
    """The key that W&B would find without asking: the environment's or the settings file's, else netrc's."""
    from requests.utils import get_netrc_auth

    # The service has two names, and a netrc holds the one under which its owner logged in.
    names = [base_url, "https://api.wandb.ai"] if base_url.endswith(".coreweave.com") else [base_url]
    found = [auth[1] for name in names if (auth := get_netrc_auth(name))]
    return api_key or next(iter(found), None)


def _answers(url: str) -> bool:
    """Whether anything answers within seconds; in a thread of its own, since looking up a name cannot be timed out."""
    answers: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def ask() -> None:
        try:
            urllib.request.urlopen(url, timeout=ANSWER_SECONDS).close()
            answers.put(True)
        except urllib.error.HTTPError:
            answers.put(True)  # It has no page there, but it is there.
        except OSError:
            answers.put(False)

    threading.Thread(target=ask, daemon=True).start()
    try:
        return answers.get(timeout=ANSWER_SECONDS)
    except queue.Empty:
        return False


def _keep_id(path: Path) -> str:
    """The id under which this directory's run is known to W&B."""
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(secrets.token_hex(4))
    return path.read_text()
