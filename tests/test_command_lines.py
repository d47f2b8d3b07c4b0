"""Random command lines: each is a run that can be, or is refused in one line and leaves nothing.

In one process: through the parser, `settings` and `build`, up to the first step, which is traced.
"""

import contextlib
import functools
import shutil
import subprocess
import sys

import hypothesis
import jax
import jax.numpy as jnp
import pytest
import small_runs
from absl import flags
from absl.testing import flagsaver
from hypothesis import strategies as st
from slow_cases import slow

from cat_jax import data, main
from cat_jax.cli import command_line
from cat_jax.configs import digits
from cat_jax.evaluation import robustness
from cat_jax.experiment import settings
from cat_jax.experiment.fields import FIELDS
from cat_jax.report import page
from cat_jax.runtime import terminal, watchdog
from cat_jax.training import loop

SCHEMA = digits.get_config()
PATHS = list(FIELDS)
WORDS = ["", "none", "None", "all", "nan", "high", "8", "8/255", "0.3", "-1", "1e400", "é", "'"]
# Values that some field of text takes; most do not fit the others.
CHOICES = [
    *("digits", "synthetic", "mnist", "cifar10", "released", "paper", "validation", "test"),
    *("SmallCNN", "PreActResNet18", "SmallMask", "OnesMask", "sum", "pair", "robust", "crop_flip"),
    *("at", "cat", "trades", "mma", "alp", "standard", "margin", "kl", "gaussian", "uniform"),
    *("training", "inference", "sgd", "adam", "cosine", "cyclic", "iteration", "kernels", "uint8"),
    *("natural,square", "quick", "epsilon", "epsilon/20", "norm", "reference", "skip"),
]
FLOATS = st.floats().map(repr) | st.floats(0, 1).map(repr)
INTS = st.integers(-2, 300).map(str) | st.integers().map(str)
TUPLES = st.lists(st.integers(-2, 200) | st.floats(0, 2)).map(lambda x: str(tuple(x)))
OF_TYPE = {
    int: INTS,
    float: FLOATS,
    bool: st.sampled_from(["True", "false", "1", "0", "2"]),
    str: st.sampled_from(CHOICES),
    tuple: TUPLES | st.sampled_from(["()", "(1,", "1", "1,2", "((1,),)", "('a',)"]),
}
ODD = st.sampled_from(WORDS) | st.text(st.characters(codec="utf-8"), max_size=8)


def kind_of(path):
    *sections, field = path.split(".")
    return functools.reduce(lambda config, name: config[name], sections, SCHEMA).get_type(field)


@st.composite
def overrides(draw):
    """--config.FIELD=VALUE, of the field's type three times in four; rarely of no field."""
    path = draw(st.sampled_from(PATHS))
    fits = draw(st.integers(0, 3))
    value = draw(OF_TYPE.get(kind_of(path), ODD) if fits else ODD)
    if draw(st.integers(0, 15)) == 0:
        path = draw(st.sampled_from([path + "s", path[:-1], path.rpartition(".")[0], "x." + path]))
    return f"--config.{path}={value}"


OTHERS = st.sampled_from(
    [
        *("--mode=evaluate", "--mode=verify", "--mode=test", "--mode", "--seeds=0,1", "--seeds=a"),
        *("--sweep=beta1=0.1,0.2", "--sweep=beta1", "--sweep=epsilon=1,2", "--sweep=num_steps=a,b"),
        *("--workdir=", "--workdir=/dev/null/x", "--confg=x", "run", "-x", "--", "--workdirs=a"),
    ]
)
CONFIGS = st.sampled_from(
    [f"cat_jax:digits:{variant}" for variant in digits.VARIANTS]
    + ["cat_jax:digits", "cat_jax:mnist", "cat_jax:nope", "cat_jax:digits:cats", "no.py", "", "/"]
)


@st.composite
def command_lines(draw):
    """What follows `python -m cat_jax.main`."""
    few = [f"--config.{f}={v}" for f, v in small_runs.OVERRIDES.items()]
    config = ["cat_jax:digits"] if draw(st.integers(0, 3)) else [draw(CONFIGS)]
    config = [] if draw(st.integers(0, 20)) == 0 else config
    made = [f"--config={c}" for c in config] + few + draw(st.lists(overrides(), max_size=3))
    return made + ([draw(OTHERS)] if draw(st.integers(0, 9)) == 0 else [])


@functools.cache
def traces(key):
    """Nothing; UsageError if the step cannot be. Traced once for all that give it one program."""
    experiment, image_shape, num = TRACED.pop(key)
    state = jax.eval_shape(experiment.init)
    batch = {
        "image": jax.ShapeDtypeStruct((1, num, *image_shape), jnp.uint8),
        "label": jax.ShapeDtypeStruct((1, num), jnp.int32),
    }
    jax.eval_shape(experiment.step_fn, state, batch, jax.random.key(0))


TRACED = {}


def trace(experiment, dataset, *_):
    """Stands for the training."""
    config = settings.as_dict(experiment.config)
    flat = {path: value for path, value in _flat(config) if not isinstance(value, (int, float))}
    flat |= {path: value for path, value in _flat(config) if isinstance(value, bool)}
    key = str(sorted(flat.items()))
    TRACED[key] = (experiment, dataset.spec.image_shape, experiment.config.batch_size)
    traces(key)
    return True


def _flat(config, prefix=""):
    for name, value in config.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        elif name not in ("data_dir", "evaluation", "test", "variant"):
            yield f"{prefix}{name}", value


@contextlib.contextmanager
def as_a_process(argv):
    """absl's flags and sys.argv as a new process has them."""
    saved = flagsaver.save_flag_values(flags.FLAGS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", argv)
        try:
            yield
        finally:
            flagsaver.restore_flag_values(saved, flags.FLAGS)
            flags.FLAGS.unparse_flags()


def outcome(argv, capsys):
    """(exit status, standard error) of the command line, as `app.run` in main.py runs it."""
    argv = ["main", *argv]
    with as_a_process(argv):
        try:
            command_line.parse(argv)
            main.main(argv[:1])
            status = 0
        except SystemExit as ended:
            status = ended.code
    return status, capsys.readouterr().err


def check(argv, workdir, capsys):
    """Whether it is a run; fails unless it is one or was refused as it should."""
    status, errors = outcome([f"--workdir={workdir}", *argv], capsys)
    if status == 0:
        shutil.rmtree(workdir)
        assert not {"nan", "inf", "-inf"} & {a.partition("=")[2] for a in argv}, argv
        return True
    assert status == 2 and errors.startswith("error: ") and errors.count("\n") == 1, errors
    assert len(errors) < 1000 and "Traceback" not in errors, errors
    assert not workdir.exists(), "a start that fails leaves no workdir"
    given = {word for a in argv for word in a.strip("-").replace("=", " ").split()}
    names = {word.rpartition(".")[2] for word in given} | given
    assert any(name in errors for name in names), errors
    return False


@pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")
@pytest.mark.parametrize(
    "override, field",
    [
        ("--config.seed=3", None),
        ("--config.classifier.normalize=False", "normalize"),
        ("--config.classifier.normalize=True", "normalize"),
        ("--config.classifier.mean=(0.5,0.5,0.5)", "mean"),
        ("--config.classifier.shortcut=activated", "shortcut"),
    ],
)
def test_the_command_line_can_state_what_a_file_of_weights_does_not(override, field):
    argv = ["main", "--config=cat_jax:digits", "--workdir=x", override]
    with as_a_process(argv):
        command_line.parse(argv)
        assert command_line.stated_fields() == ({field} if field else set())


# How ml_collections imports a config file.
@pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")
@pytest.mark.parametrize("count", [60, slow(200), slow(2000)])
def test_random_command_lines_are_runs_or_are_refused_in_one_line(
    count, tmp_path, capsys, monkeypatch
):
    load = functools.cache(data.load)
    monkeypatch.setattr(data, "load", load)
    monkeypatch.setattr(loop, "train", trace if count > 200 else lambda *_: True)
    monkeypatch.setattr(robustness, "evaluate", lambda *_: None)
    monkeypatch.setattr(page, "write_page", lambda workdir, references: workdir)
    monkeypatch.setattr(terminal, "start", lambda process, quiet: None)
    # A random limit may be a millisecond, after which it would end this process.
    monkeypatch.setattr(watchdog, "watching", lambda *_: contextlib.nullcontext())
    seen = {True: 0, False: 0}

    @hypothesis.settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(command_lines())
    def run(argv):
        seen[check(argv, tmp_path / "run", capsys)] += 1

    run()
    assert min(seen.values()) > count / 10, seen


@pytest.mark.slow
def test_random_command_lines_in_processes_of_their_own(tmp_path):
    """The same of 20; a run that goes on for long is good, and is killed."""
    seen = []

    @hypothesis.settings(
        max_examples=20,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(command_lines())
    def run(argv):
        workdir = tmp_path / "run"
        command = [sys.executable, "-m", "cat_jax.main", f"--workdir={workdir}", *argv]
        with subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        ) as process:
            try:
                _, errors = process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                _, errors = process.communicate()
        seen.append(process.returncode)
        assert "Traceback" not in errors and process.returncode in (0, 2, -9), errors
        if process.returncode == 2:
            assert errors.startswith("error: ") and errors.count("\n") == 1, errors
            assert not workdir.exists()
        shutil.rmtree(workdir, ignore_errors=True)

    run()
    assert 2 in seen and {0, -9} & set(seen), seen
