"""Weights & Biases: online when it can be, offline when it cannot, never in the way."""

import logging
import os
import queue
import secrets
import threading
import urllib.error
import urllib.request
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from seqlab.training.loggers.scalars import name_scalars
from seqlab.types import Event, Run, require

MODES = ("online", "offline", "disabled")
ANSWER_SECONDS = 3.0
INIT_SECONDS = 10.0
FINISH_SECONDS = 30.0


class WandbLogger:
    """One W&B run for each run, its files under the run's directory; `wandb sync` uploads an offline one.

    `mode` None: what WANDB_MODE says, else online if a key is configured and the service answers, else offline. It
    asks nothing, and a service that stops answering holds nothing up: the files have it all. A run that is gone on
    with keeps its id.

    Raises   UserError for an unknown mode, and for mode="online" where that fails.
    """

    def __init__(self, mode: str | None = None, project: str = "seqlab", entity: str | None = None) -> None:
        mode = mode or os.environ.get("WANDB_MODE")
        require(mode is None or mode in MODES, f"logger.wandb.mode is {mode!r}: expected null, {', '.join(MODES)}")
        self._mode, self._project, self._entity = mode, project, entity
        self._starting: Future[Any] | None = None

    def start(self, run: Run) -> None:
        if self._mode == "disabled":
            return
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
            self._starting.result().log(name_scalars(event), step=event.step)

    def finish(self, status: str, summary: dict[str, Any]) -> None:
        if self._starting is None:
            return
        wandb_run = self._starting.result()
        try:
            best = {f"best/{split}": named for split, named in summary.get("best", {}).items()}
            wandb_run.summary.update({"status": status, **best})
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
        return wandb.init(
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
            config=run.config,
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
