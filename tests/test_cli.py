"""The door of the command lines: what a mistake is told, which exit code it gets, and how one goes back to a run."""

import gc
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hydra.core.hydra_config import HydraConfig
from hydra.errors import MissingConfigException
from hydra.utils import instantiate
from omegaconf import OmegaConf

from seqlab import analyze, evaluate, generate, report, train
from seqlab.cli import FAILED_OBJECTIVE, run_command
from seqlab.overrides import CONF, explain_missing, find_conf, groups, nearest
from seqlab.training.schedule import constant
from seqlab.types import UserError


@pytest.fixture
def command(tmp_path, monkeypatch, capfd):
    """Run a job as a command line in an empty directory; returns its exit code, standard output and error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    # JAX has read these already: set, they keep the command from changing JAX for the other tests.
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "1")

    def run(job, *arguments, main=None):
        monkeypatch.setattr(sys, "argv", ["seqlab", *arguments])
        try:
            run_command(job) if main is None else main()
        except SystemExit as end:
            return end.code, *capfd.readouterr()
        return 0, *capfd.readouterr()

    return run


def unreachable(config):
    raise AssertionError("the job ran although its command line is wrong")


def build_optimiser(config):
    instantiate(config.optim, factor=constant())
    return 0.0


def keep(config):
    """Leave behind what a run leaves: its overrides, and a summary."""
    run = HydraConfig.get()
    directory = Path(run.runtime.output_dir)
    OmegaConf.save(run.overrides.task, directory / "overrides.yaml")
    (directory / "summary.json").write_text(json.dumps({"status": "completed"}))
    print("seed", config.seed, "steps", config.trainer.steps, "optim", config.optim.learning_rate)
    return 0.0


# Of mistakes that the list below has already.
LIKE_OTHERS: list[tuple[list[str], str]] = [
    (["learning_rate=0.1"], "did you mean optim.learning_rate?"),
    (["modl=tagger"], "did you mean model"),
    (["task=coppy_first"], "did you mean copy_first"),
    (["-m", "model/cell=gru,lstmm"], "model/cell=lstmm: there is no lstmm in model/cell"),
    (["-m", "optim.learning_rat=0.1,0.2"], "did you mean optim.learning_rate?"),
    (["notes=a, b"], "or quote a text twice, notes='\"...\"'"),
    (["task=reverse", "model/pool=mean"], "it comes with model=classifier"),
    (["model.encoder.residual=maybe"], "model.encoder.residual=maybe: expected true or false."),
    (["trainer.patience=soon"], "trainer.patience=soon: expected a whole number or null."),
    (["+model.encoder.layer.cell.feature=5"], "did you mean features"),
]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["optim.lr=0.1"], "optim.lr=0.1: there is no key optim.lr; did you mean optim.learning_rate?"),
        (["trainer.step=3"], "did you mean trainer.steps?"),
        (["optim=lion", "optim.direction.eps=1"], "there are optim.direction.b1, optim.direction.b2."),
        (["model/cell=lstmm"], "model/cell=lstmm: there is no lstmm in model/cell; did you mean lstm"),
        (["+experment=x"], "there is no group or key experment; did you mean experiment?"),
        (["+experiment=ner", "+experiment=tagging"], "experiment is chosen more than once: leave one out."),
        (["+model.naem=x"], "Classifier has no field naem; there are dropout, encoder, inputs, n_outputs, pool."),
        (["experiment=x"], "so write +experiment=x."),
        (["hydra/launcher=jobli"], "did you mean joblib?"),
        (["-m", "optim=adam,sgd", "optim.direction.b1=0.5"], "there is no key optim.direction.b1"),
        (["trainer.steps=3,5"], "trainer.steps=3,5: add -m to sweep over the values"),
        (["copy_task"], "copy_task is not an override: write key=value"),
        (["trainer.steps=[1"], "trainer.steps=[1: not an override that can be read"),
        (["notes=THE ZÜ"], "quote a text twice, notes='\"...\"'"),
        (
            ["task=parity", "model/decoder=soft"],
            "has none; it comes with model=encoder_decoder",
        ),
        (["model/encoder=transformer", "model/cell=gru"], "model/cell: the model of this config has none"),
        (
            ["+experiment=video", "model/encoder=identity"],
            "experiment/video chooses a model/cell, but what else is chosen here has none: leave one out, "
            "or begin with the task alone: task=video_tagging model/encoder=identity",
        ),
        (["optim.learning_rate=abc"], "optim.learning_rate=abc: expected a number."),
        (["task.length=2.5"], "task.length=2.5: expected a whole number."),
        (["+task.lenght=5"], "task.lenght: CopyFirst has no field lenght; did you mean length?"),
        (["task._target_=seqlab.tasks.nothing.Nothing"], "seqlab.tasks.nothing.Nothing: there is no such object."),
        (["hydra.run.dir=file/run"], "file/run: the run directory cannot be made"),
        (["resume=nowhere"], "nowhere holds no run"),
        (["-m", "resume=nowhere"], "a sweep cannot go back to a run"),
        *(pytest.param(*mistake, marks=pytest.mark.slow) for mistake in LIKE_OTHERS),
    ],
)
def test_mistake_is_told_in_one_sentence(command, arguments, told):
    Path("file").write_text("")
    code, out, err = command(unreachable, *arguments)
    assert code == 2
    assert told in err
    assert err.count("\n") == 1 and out == ""


def test_mistyped_experiment_names_the_nearest(command):
    experiment = groups()["experiment"][0]
    code, _, err = command(unreachable, f"+experiment={experiment}x")
    assert code == 2 and f"did you mean {experiment}" in err


def test_user_error_inside_instantiate_is_told_in_one_sentence(command):
    code, out, err = command(build_optimiser, "optim.learning_rate=-0.1")
    assert (code, out, err) == (2, "", "learning_rate=-0.1 should be zero or a positive number.\n")
    assert not list(Path().iterdir()), "a refused run left something"


@pytest.mark.parametrize(
    ("main", "arguments", "told"),
    [
        (analyze.main, [], "analysis is not given"),
        (analyze.main, ["-m", "analysis=gradients,gates"], "run=DIR: a sweep cannot go back to a run"),
        (analyze.main, ["run=runs/empty", "analysis=gradients"], "empty holds no run"),
        (evaluate.main, [], "run has no value"),
        (evaluate.main, ["run=nowhere"], "nowhere holds no run"),
        (evaluate.main, ["run=r", "optim.learning_rate=1"], "would change nothing: the run in r is trained already"),
        (analyze.main, ["run=r", "schedule=cosine"], "schedule=cosine would change nothing"),
        (generate.main, ["run=r", "trainer.steps=5"], "trainer.steps=5 would change nothing"),
        (generate.main, ["n=0"], "n is 0"),
        (report.main, [], "Of which runs?"),
        (report.main, ["runs/empty"], "empty holds no run"),
        (train.main, ["seeds=0"], "seeds is 0"),
    ],
)
def test_a_mistake_at_the_door_leaves_nothing(command, main, arguments, told):
    Path("runs/empty").mkdir(parents=True)
    code, _, err = command(unreachable, *arguments, main=main)
    assert code == 2 and told in err and err.count("\n") == 1
    assert list(Path().rglob("*")) == [Path("runs"), Path("runs/empty")]


def test_failure_of_ours_shows_its_traceback(command):
    def fail(config):
        raise RuntimeError("out of luck")

    code, _, err = command(fail)
    assert code == 1
    assert err.startswith("Traceback") and "RuntimeError: out of luck" in err and "in fail" in err


def test_interrupt_exits_with_130(command):
    def interrupt(config):
        raise KeyboardInterrupt

    for arguments in ([], ["-m", "seed=3,5"]):
        code, out, _ = command(interrupt, *arguments)
        assert code == 130
        assert "job 1" not in out, "the sweep went on"


def test_terminated_before_there_is_something_to_save_is_interrupted(command):
    def terminate(config):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)

    code, out, err = command(terminate)
    assert (code, out, err) == (130, "", "Interrupted.\n")
    assert not list(Path().iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_interrupts_where_nothing_can_be_raised_is_not_lost(command, number):
    class Dying:
        def __del__(self):
            signal.raise_signal(number)

    def in_a_callback_of_the_garbage_collector(phase, info):
        gc.callbacks.remove(in_a_callback_of_the_garbage_collector)
        signal.raise_signal(number)

    def die(config):
        Dying()
        time.sleep(60)

    def collect(config):
        gc.callbacks.append(in_a_callback_of_the_garbage_collector)
        gc.collect()
        time.sleep(60)

    for interrupted in (die, collect):
        assert command(interrupted) == (130, "", "Interrupted.\n")


def test_a_refused_sweep_leaves_nothing(command):
    code, _, err = command(unreachable, "-m", "model/cell=lstm,gruu")
    assert code == 2 and "there is no gruu in model/cell" in err
    assert not list(Path().iterdir())


def test_an_interrupted_sweep_shows_what_is_done(command):
    def interrupted_at_5(config):
        if config.seed == 5:
            raise KeyboardInterrupt
        return keep(config)

    code, out, err = command(interrupted_at_5, "-m", "seed=3,5,7", "hydra.sweep.dir=sweep")
    assert code == 130 and err.endswith("Interrupted.\n")
    assert "completed" in out and "job 2" not in out


@pytest.mark.parametrize("order", [1, -1])
def test_a_debug_choice_shrinks_an_experiment_wherever_it_stands(command, order):
    def tell(config):
        print("steps", config.trainer.steps)
        return 0.0

    code, out, _ = command(tell, *["+experiment=copy_task", "+debug=tiny"][::order])
    assert code == 0 and "steps 6\n" in out


@pytest.mark.slow
def test_who_reads_no_further_is_not_told_so(tmp_path):
    read = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m seqlab.train --help | true; exit ${{PIPESTATUS[0]}}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (read.returncode, read.stdout, read.stderr) == (141, "", "")


def test_failing_job_neither_stops_nor_hides_the_others(command):
    def fail_at_5(config):
        if config.seed == 5:
            raise RuntimeError("out of luck")
        if config.seed == 7:
            raise UserError("seven is not wanted.")
        return keep(config)

    code, out, err = command(fail_at_5, "-m", "seed=3,5,7,11", "hydra.sweep.dir=sweep")
    assert code == 1
    assert "seed 3" in out and "seed 11" in out
    assert "job 1 failed: Traceback" in err and "job 2 failed: seven is not wanted.\n" in err
    assert "2 of 4 jobs failed." in err
    summaries = [json.loads(Path(f"sweep/{job}/summary.json").read_text()) for job in range(4)]
    assert [summary["status"] for summary in summaries] == ["completed", "failed", "failed", "completed"]
    assert "out of luck" in summaries[1]["message"]


def test_sweep_that_succeeds_exits_with_0(command):
    code, _, err = command(keep, "-m", "seed=3,5")
    assert (code, err) == (0, "")
    assert len(list(Path("multirun").glob("*/*/summary.json"))) == 2


@pytest.mark.slow
def test_sweep_over_a_directory_that_holds_other_runs_overwrites_nothing(command):
    command(keep, "-m", "seed=3,5", "hydra.sweep.dir=sweep")
    before = Path("sweep/1/summary.json").read_text()

    def refuse(config):
        raise UserError("this directory holds another run.")

    code, _, err = command(refuse, "-m", "seed=7,11", "hydra.sweep.dir=sweep")
    assert code == 1
    assert "job 1 failed: this directory holds another run." in err
    assert Path("sweep/1/summary.json").read_text() == before
    assert command(keep, "-m", "seed=3,5", "hydra.sweep.dir=sweep")[0] == 0, "an old failure was counted"


def test_failed_job_returns_a_finite_number_to_the_sweeper():
    assert math.isfinite(FAILED_OBJECTIVE)


def test_resume_takes_the_overrides_of_the_run_and_later_ones_win(command):
    command(keep, "hydra.run.dir=my run", "optim=sgd", "seed=3", "trainer.steps=5", "optim.learning_rate=0.25")
    code, out, _ = command(keep, "resume='my run'", "trainer.steps=7", "optim=adam")
    assert code == 0
    assert "seed 3 steps 7 optim 0.25" in out
    assert not Path("runs").exists()


def test_mistyped_key_is_told_by_the_config_of_the_run_one_goes_back_to(command):
    command(keep, "hydra.run.dir=run", "task=adding", "optim=momentum")
    code, _, err = command(unreachable, "resume=run", "optim.direction.mu=0.5", "optim.direction.nesterof=true")
    assert code == 2
    assert "there is no key optim.direction.nesterof; did you mean optim.direction.nesterov?" in err


def test_value_that_must_be_given_is_asked_for(command):
    def read_missing(config):
        return config.seed

    assert command(read_missing, "seed=???") == (2, "", "seed has no value: write seed=...\n")


def test_help_names_groups_choices_and_places(command):
    code, out, _ = command(unreachable, "--help")
    assert code == 0
    for words in ("+experiment=copy_task", "runs/NAME/TIME", "resume=RUN_DIR", "-m +experiment", "model/cell: "):
        assert words in out
    for group, choices in groups().items():
        assert f"{group}: {', '.join(choices)}" in out


def test_conf_is_found_in_a_checkout_and_in_a_wheel(tmp_path):
    assert (CONF / "config.yaml").is_file()
    assert find_conf(tmp_path / "seqlab") == tmp_path / "conf"
    (tmp_path / "seqlab" / "conf").mkdir(parents=True)
    assert find_conf(tmp_path / "seqlab") == tmp_path / "seqlab" / "conf"


def test_nearest_reads_initials_and_last_names():
    keys = ["optim", "optim.learning_rate", "trainer.steps", "task.length"]
    assert nearest("lr", keys) == "did you mean optim.learning_rate?"
    assert nearest("length", keys) == "did you mean task.length?"
    assert nearest("trainer.batch", keys) == "there are trainer.steps."


@pytest.mark.slow
@pytest.mark.parametrize("writable", [True, False])
def test_compilations_are_kept_where_that_is_possible(tmp_path, writable):
    script = (
        "import jax, seqlab.cli; seqlab.cli.use_compilation_cache();"
        "print(jax.jit(lambda x: (x @ x).sum())(jax.numpy.ones((3, 3))))"
    )
    cache = tmp_path if writable else Path("/dev/null")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("JAX_")}
    environment |= {"XDG_CACHE_HOME": str(cache), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "27.0\n"
    assert bool(list(tmp_path.glob("seqlab/jax/*"))) == writable


def test_launcher_of_a_missing_extra_is_told_with_the_extra():
    missing = MissingConfigException("", "hydra/launcher/joblib", ["basic"])
    assert explain_missing(missing) == "hydra/launcher=joblib needs the extra sweep: pip install 'seqlab[sweep]'."


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["joblib", "submitit_local"])
def test_sweep_in_processes_ends_like_one_in_a_single_process(tmp_path, launcher):
    command = [sys.executable, "-m", "seqlab.train", "-m", "+experiment=copy_task", "+debug=tiny", "logger=[]"]
    sweep = ["optim.learning_rate=-1,0.01,0.02", "hydra.sweep.dir=sweep", f"hydra/launcher={launcher}"]
    done = subprocess.run([*command, *sweep], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 1, done.stderr
    assert "job 0 failed: learning_rate=-1 should be zero or a positive number." in done.stdout
    assert "1 of 3 jobs failed." in done.stderr
    summaries = [json.loads((tmp_path / f"sweep/{job}/summary.json").read_text()) for job in range(3)]
    assert [summary["status"] for summary in summaries] == ["failed", "completed", "completed"]
