"""What a GPU has to reach, what it reached, and the report of it as Markdown."""

import statistics
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

GIGABYTES = 16
Stages = Mapping[str, Mapping[str, Any]]


class Verdict(NamedTuple):
    """One line: what, how much was asked for, how much there was, pass, FAIL, or why neither."""

    what: str
    target: str
    measured: str
    verdict: str


def verdicts(stages: Stages, full: bool) -> list[Verdict]:
    """Every target, with what the stages found.

    Args:
      stages: by name: how each ended, what it found.
      full: whether they did the work that the targets are for, and not a little of it.
    """

    def found(name: str) -> Mapping[str, Any]:
        return stages.get(name, {}).get("found") or {}

    platform = found("device").get("device", {}).get("platform")
    beside = "no GPU" if platform != "gpu" else "" if full else "small scale"
    made = []

    def judge(what: str, target: str, measured: str | None, passed: bool | None) -> None:
        verdict = "unfinished" if passed is None else "pass" if passed else "FAIL"
        said = "not measured" if measured is None else beside or verdict
        made.append(Verdict(what, target, measured or "-", said))

    for dtype in ("float32", "float64"):
        tests = found(name := f"golden {dtype}")
        text = tests and f"{tests['passed']} passed, {len(tests['failed'])} failed"
        passed = bool(tests) and tests["passed"] > 0 and not tests["failed"]
        if passed and stages[name]["ended"] != "done":
            passed = None
        judge(f"golden numbers, {dtype}, highest precision", "all", text or None, passed)

    cifar, wrn, mnist = found("train cifar10"), found("wrn bfloat16"), stages.get("train mnist", {})
    minutes = cifar.get("seconds_of_all_epochs", 0) / 60
    text = f"{minutes:.1f} min from {cifar['steady_seconds']:.0f} s" if cifar else None
    judge("CAT, PreAct ResNet-18, 140 epochs, trained", "15 min", text, minutes <= 15)
    for name in ("preact bfloat16", "preact float32"):
        minutes = found(name).get("summary", {}).get("seconds_of_the_run", 0) / 60
        text = f"{minutes:.1f} min" if minutes else None
        judge(f"the same, by the benchmark, {name.split()[1]}", "15 min", text, minutes <= 15)
    for name in ("wrn bfloat16", "wrn float32"):
        hours = found(name).get("summary", {}).get("seconds_of_the_run", 0) / 3600
        what = f"CAT, WRN-34-10, 140 epochs, {name.split()[1]}, recomputing"
        judge(what, "2 h", f"{hours:.2f} h" if hours else None, hours <= 2)
    memory = wrn.get("memory", {})
    planned = sum(memory.get(k, 0) for k in ("argument", "output", "temp")) - memory.get("alias", 0)
    text = f"{planned / 1e9:.1f} GB planned; {memory.get('peak', 0) / 1e9:.1f} in use, or tried"
    fits = planned <= GIGABYTES * 1e9
    judge("WRN-34-10, batch 128, memory", f"{GIGABYTES} GB", text if memory else None, fits)
    run, seconds = mnist.get("found") or {}, mnist.get("seconds", 0)
    whole = bool(run) and run["epoch"] >= run["num_epochs"]
    text = f"{seconds:.0f} s, of which steps {run['seconds_of_steps']:.0f}" if run else None
    if run and not whole:
        text = f"{run['epoch']:.1f} epochs in {text}"
    judge("MNIST, all epochs, with start and validations", "60 s", text, whole and seconds <= 60)
    pgd = found("pgd")
    ratio, peer = _faster(pgd)
    text = f"{ratio:.2f}x of {peer}" if pgd else None
    judge("PGD-20 beside torch.compile, bfloat16", "1.5x torchattacks", text, ratio >= 1.5)
    for name in ("preact bfloat16", "preact float32", "mnist float32", "mnist bfloat16"):
        if not (one := found(name)):
            judge(f"data pipeline, {name}", "2%", None, False)
            continue
        cost = one["summary"]["data_over_none"] - 1
        judge(f"data pipeline, {name}", "2%", f"{cost:+.1%}", cost <= 0.02)
        number = one["compilations"]
        judge(f"compilations of the step, {name}", "1", str(number), number == 1)
    return made


def _faster(pgd: Mapping[str, Any]) -> tuple[float, str]:
    """How many times as fast as the peer ours is, and which that is."""
    if not pgd:
        return 0.0, ""
    (times,) = pgd["seconds"].values()
    ours = statistics.median(times["cat_jax"])
    return statistics.median(times[pgd["peer"]]) / ours, pgd["peer"]


def markdown(report: Mapping[str, Any]) -> str:
    """The whole report."""
    stages = report["stages"]
    device = (stages.get("device", {}).get("found") or {}).get("device", {})
    lines = ["# Report of a GPU", ""]
    if device.get("platform") != "gpu":
        lines += [f"**No GPU was found** ({device or 'see the stage device'}).", ""]
    else:
        lines += [f"{device['count']} x {device['kind']}.", ""]
    if report["scale"] != "full":
        lines += ["**At a small scale, on other data: it shows that the stages work.**", ""]
    versions = (stages.get("device", {}).get("found") or {}).get("versions", {})
    lines += [", ".join(f"{name} {version or '(none)'}" for name, version in versions.items()), ""]
    lines += _table("what", "target", "measured", "", rows=report["targets"])
    rows = [(n, s["ended"], f"{s.get('seconds', 0):.0f}") for n, s in stages.items()]
    lines += _table("stage", "how it ended", "s", rows=rows)
    lines += _table(*SPEEDS, rows=_speeds(stages))
    for name in ("train mnist", "evaluate mnist", "train cifar10"):
        found = (stages.get(name) or {}).get("found") or {}
        rows = [(key, _short(value)) for key, value in found.items()]
        lines += [f"## {name}", "", *_table("", "", rows=rows)]
    return "\n".join([*lines, "## nvidia-smi", "", "```", report["machine"].rstrip(), "```", ""])


PARTS = ("attack", "theta", "phi", "closing", "whole")
SPEEDS = ("benchmark", "images/s", "TFLOP/s", "of peak", *(f"{part}, ms" for part in PARTS))
SPEEDS += ("start, s", "compiling, s")


def _speeds(stages: Stages) -> Iterable[tuple[str, ...]]:
    for name, stage in stages.items():
        found = stage.get("found") or {}
        if "summary" not in found:
            continue
        made, start = found["summary"], found["start"]
        of_part = {k: f"{1e3 * statistics.median(t):.2f}" for k, t in found["seconds"].items()}
        times = [of_part.get(part, "-") for part in PARTS]
        speed = f"{made['images_per_second']:.4g}", f"{made['flops_per_second'] / 1e12:.4g}"
        ends = f"{start['total']:.1f}", f"{start['compiling']:.1f}"
        yield (name, *speed, f"{made['share_of_peak']:.1%}", *times, *ends)


def _table(*heads: str, rows: Iterable[Iterable[str]]) -> list[str]:
    lines = [heads, ["---"] * len(heads), *rows]
    return [*(f"| {' | '.join(line)} |" for line in lines), ""]


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_short(inner)}" for key, inner in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)
