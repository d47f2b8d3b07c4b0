"""The stages of gpu_report.py: their commands, their share of the time, what their files say."""

import functools
import json
import os
import pathlib
import xml.etree.ElementTree
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

STEADY = 30.0  # Seconds of training that a speed is taken from.
GOLDEN = ("losses", "networks", "attacks", "train_step")
DEVICE = """
import importlib, json, sys, jax
found = {"python": sys.version.split()[0]}
for name in ("jax", "jaxlib", "flax", "optax", "orbax.checkpoint", "numpy", "torch"):
    try:
        found[name] = importlib.import_module(name).__version__
    except ImportError:
        found[name] = None
device = jax.devices()[0]
kind = {"platform": device.platform, "kind": device.device_kind, "count": len(jax.devices())}
json.dump({"versions": found, "device": kind}, open(sys.argv[1], "w"))
"""


class Stage(NamedTuple):
    """One process of the report.

    Attributes:
      name: of it in the report.
      seconds: the most that it may take.
      command: of Python.
      read: what it has found, from its files; also where it did not end well.
      environment: in addition to that of this process.
      least: with fewer seconds left it is not begun.
      needs: a package without which it is left out.
    """

    name: str
    seconds: float
    command: list[str]
    read: Callable[[], dict[str, Any]]
    environment: Mapping[str, str] = {}
    least: float = 15.0
    needs: str = "json"  # Which is always there.


class Scale(NamedTuple):
    """What is run; at the small scale, only to see that all of it works.

    Attributes:
      benchmarks: name -> (arguments, seconds).
      mnist, cifar: config and overrides of the two runs.
      cifar_seconds: the most that the second may take.
      pgd: arguments of `pgd_on_gpu.py`.
      golden: what pytest selects of the golden tests.
      reserve: seconds that the stages before it leave to the last one, which trains on CIFAR-10.
    """

    benchmarks: dict[str, tuple[list[str], float]]
    mnist: list[str]
    cifar: list[str]
    cifar_seconds: float
    pgd: list[str]
    golden: str
    reserve: float


def config(name: str, **overrides: Any) -> list[str]:
    """The flags that name it."""
    flags = [f"--config=configs/{name}"]
    return flags + [f"--config.{field}={value}" for field, value in overrides.items()]


PREACT, WRN = "preact_cifar10.py:cat_cw", "wrn_cifar10.py:cat_cw"
MNIST_RUN = config("mnist.py:cat_cw", steps_per_dispatch=50)
DIGITS = functools.partial(config, "digits.py:cat_cw", batch_size=32)
BFLOAT16: dict[str, Any] = {"precision": "bfloat16"}
SCALES = {
    "full": Scale(
        {
            "preact bfloat16": ([*config(PREACT, **BFLOAT16), "--steps=30"], 70),
            "mnist float32": ([*MNIST_RUN, "--steps=50"], 45),
            "wrn bfloat16": (
                [*config(WRN, remat=True, **BFLOAT16), "--steps=10", "--nophases"],
                110,
            ),
            "preact float32": ([*config(PREACT), "--steps=10"], 60),
            "mnist bfloat16": ([*MNIST_RUN, "--config.precision=bfloat16", "--steps=50"], 40),
            "wrn float32": ([*config(WRN, remat=True), "--nophases"], 100),
        },
        MNIST_RUN,
        config(PREACT, save_every=2000, **BFLOAT16),
        1e9,
        ["--num_images=1024"],
        "golden and float32 and not split_over",
        110.0,
    ),
    "small": Scale(
        {"preact bfloat16": (DIGITS(**BFLOAT16), 150), "mnist float32": (DIGITS(), 150)},
        DIGITS(num_epochs=2, steps_per_dispatch=5),
        DIGITS(num_epochs=1000),
        30.0,
        ["--num_images=2", "--network=SmallCNN", "--rounds=1"],
        "test_loss_golden and float32-10 and dlr",
        15.0,
    ),
}
# The order in which they are run, the most telling first; CIFAR-10 has the rest of the time.
ORDER = (
    *("device", "golden float32", "preact bfloat16", "mnist float32", "train mnist"),
    *("evaluate mnist", "wrn bfloat16", "pgd", "preact float32", "mnist bfloat16"),
    *("golden float64", "wrn float32", "train cifar10"),
)


def stages(scale: Scale, folder: pathlib.Path, cifar: pathlib.Path) -> dict[str, Stage]:
    """All of them, by name. What they write is in `folder`, but for the run on CIFAR-10."""
    made: list[Stage] = []
    data = [f"--config.data_dir={path}"] if (path := os.environ.get("CAT_JAX_DATA")) else []

    def add(name: str, seconds: float, *command: str, **more: Any) -> None:
        out = folder / f"{name.replace(' ', '_')}.json"
        read = more.pop("read", functools.partial(read_json, out))
        words = [word.replace("{out}", str(out)) for word in command]
        made.append(Stage(name, seconds, words, read, **more))

    add("device", 60, "-c", DEVICE, "{out}")
    tests = [f"tests/test_{name}_golden.py" for name in GOLDEN]
    for dtype, seconds in (("float32", 80), ("float64", 60)):
        pytest = (
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-W",
            "ignore",
            "--junitxml={out}",
        )
        chosen = scale.golden.replace("float32", dtype)
        read = functools.partial(read_tests, folder / f"golden_{dtype}.json")
        precise = {"JAX_DEFAULT_MATMUL_PRECISION": "highest", "JAX_DISABLE_MOST_OPTIMIZATIONS": "0"}
        name = f"golden {dtype}"
        add(name, seconds, *pytest, "-k", chosen, *tests, read=read, environment=precise)
    for name, (flags, seconds) in scale.benchmarks.items():
        add(name, seconds, "-m", "benchmarks.step_cost", *flags, *data, "--out={out}", least=30)

    mnist = folder / "mnist"
    main = ("-m", "cat_jax.main")
    train = ("--config.evaluation=none", *data)
    run = functools.partial(read_run, mnist)
    add("train mnist", 150, *main, *scale.mnist, *train, f"--workdir={mnist}", read=run, least=30)
    quick = ("--mode=evaluate", "--config.evaluation=quick", "--config.test.num_checked=0")
    results = functools.partial(read_results, mnist)
    add("evaluate mnist", 60, *main, *quick, *data, f"--workdir={mnist}", read=results)
    add("pgd", 75, "benchmarks/pgd_on_gpu.py", *scale.pgd, "--out={out}", least=30, needs="torch")
    run = functools.partial(read_run, cifar)
    flags = [*scale.cifar, *train, f"--workdir={cifar}"]
    add("train cifar10", scale.cifar_seconds, *main, *flags, read=run, least=10)
    return {stage.name: stage for stage in made}


def read_json(path: pathlib.Path) -> dict[str, Any]:
    """The object in a file."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def read_tests(path: pathlib.Path) -> dict[str, Any]:
    """How many tests passed, of pytest's XML, and which did not."""
    cases = list(xml.etree.ElementTree.parse(path).iter("testcase"))
    bad = [
        c.get("name") for c in cases if c.find("failure") is not None or c.find("error") is not None
    ]
    skipped = sum(case.find("skipped") is not None for case in cases)
    return {"passed": len(cases) - len(bad) - skipped, "skipped": skipped, "failed": bad}


def read_run(workdir: pathlib.Path) -> dict[str, Any]:
    """How far a run is, and its speed over its last `STEADY` seconds of steps."""
    settings = read_json(workdir / "config.json")
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    validations = [line for line in lines if "validation_natural" in line]
    lines = [line for line in lines if "images_per_second" in line]
    seconds, images, stepping, before = 0.0, 0.0, 0.0, 0
    each = []
    for line in lines:
        number = (line["step"] - before) * settings["batch_size"]
        before = line["step"]
        each.append((number, number / line["images_per_second"]))
    stepping = sum(took for _, took in each)
    for number, took in reversed(each[1:] or each):  # The first has the compilation.
        if seconds >= STEADY:
            break
        images, seconds = images + number, seconds + took
    last = lines[-1]
    whole = settings["num_epochs"] * last["step"] / last["epoch"] * settings["batch_size"]
    return {
        "step": last["step"],
        "epoch": last["epoch"],
        "num_epochs": settings["num_epochs"],
        "seconds_of_steps": stepping,
        "steady_seconds": seconds,
        "images_per_second": images / seconds,
        "seconds_of_all_epochs": whole / (images / seconds),
        "validation": validations[-1] if validations else None,
    }


def read_results(workdir: pathlib.Path) -> dict[str, Any]:
    """Accuracy by checkpoint and attack."""
    lines = [json.loads(line) for line in (workdir / "results.jsonl").read_text().splitlines()]
    return {f"{line['checkpoint']} {line['attack']}": line["accuracy"] for line in lines}
