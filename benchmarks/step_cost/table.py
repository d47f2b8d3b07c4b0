"""The measurements as a table to read, each line with what it means."""

from collections.abc import Iterable
from typing import Any

from benchmarks.step_cost.timing import PHASES, spread

MEANINGS = {
    "attack": "augmentation, x' (Eq. 9), mask and x'_cali (Eq. 10)",
    "theta": "update of the classifier (Eq. 13)",
    "phi": "update of the mask network (Eq. 14)",
    "closing": "forwards for running statistics alone, means over the devices",
    "sum": "of these four medians, each run alone",
    "whole": "a step as it is trained, waited for",
    "with data": "steps in a row, each with a batch that the host makes meanwhile",
    "one batch": "steps in a row on one batch: what the data cost is the difference",
}


def text(found: dict[str, Any]) -> str:
    """The whole table."""
    return "\n".join(["", *_head(found), "", *_times(found), "", *_numbers(found)])


def summary(found: dict[str, Any]) -> dict[str, float]:
    """The numbers that the table derives from those that were measured."""
    work = {phase: sum(found["flops_by_hand"][phase].values()) for phase in PHASES}
    medians = {name: spread(times).median for name, times in found["seconds"].items()}
    steady = {name: spread(times).median for name, times in found["streams"].items()}
    speed, peak = sum(work.values()) / steady["with data"], _peak(found)
    alone = sum(medians[phase] for phase in PHASES if phase in medians)
    return {
        "sum_over_whole": alone / medians["whole"],  # 0 where the phases were not timed.
        "data_over_none": steady["with data"] / steady["one batch"],
        "images_per_second": found["batch_size"] / steady["with data"],
        "flops_of_a_step": sum(work.values()),
        "flops_of_the_run": found["run_steps"] * sum(work.values()),
        "flops_per_second": speed,
        "share_of_peak": speed / peak,
        "seconds_of_the_run": found["run_steps"] * steady["with data"],
    }


def _peak(found: dict[str, Any]) -> float:
    return float(found["matmul"]["flops_per_second"] * found["device"]["count"])


def _head(found: dict[str, Any]) -> Iterable[str]:
    device, versions = found["device"], found["versions"]
    yield f"{found['dataset']} {found['variant']}: batches of {found['batch_size']}"
    yield (
        f"on {device['count']} x {device['kind']} ({device['platform']}), {found['precision']}, "
        + (f"jax {versions['jax']}")
    )
    yield f"images: {found['images']}"


def _times(found: dict[str, Any]) -> Iterable[str]:
    times = dict(found["seconds"])
    whole = times.pop("whole")
    if times:
        times["sum"] = [sum(spread(seconds).median for seconds in times.values())]
    times |= {"whole": whole, **found["streams"]}
    heads = ("", "ms", "least", "most", "images/s", "TFLOP/s", "of peak", "")
    yield "{:<10}{:>10}{:>10}{:>10}{:>10}{:>9}{:>9}  {}".format(*heads)
    for name, seconds in times.items():
        median, least, most = spread(seconds)
        phases = [name] if name in PHASES else PHASES
        work = sum(sum(found["flops_by_hand"][phase].values()) for phase in phases)
        yield (
            f"{name:<10}{1e3 * median:>10.2f}{1e3 * least:>10.2f}{1e3 * most:>10.2f}"
            f"{found['batch_size'] / median:>10.4g}{work / median / 1e12:>9.3g}"
            f"{work / median / _peak(found):>9.1%}  {MEANINGS[name]}"
        )


def _numbers(found: dict[str, Any]) -> Iterable[str]:
    made, matmul, start = summary(found), found["matmul"], found["start"]
    xla, memory = found["flops_by_xla"], found["memory"]
    if made["sum_over_whole"]:
        yield f"sum / whole          {made['sum_over_whole']:.3f}"
    yield f"with data / one batch {made['data_over_none']:.3f}"
    yield (
        f"operations of a step {made['flops_of_a_step']:.4g} by hand (2 a multiply-add of "
        "convolutions and dense layers)"
    )
    yield (
        f"  by XLA             {xla:.4g} (padding left out; as lowered for this platform)"
        if (xla)
        else "  by XLA             not said on this platform"
    )
    for kind in ("forward", "input_gradient", "weight_gradient"):
        share = sum(found["flops_by_hand"][phase][kind] for phase in PHASES)
        yield f"  {kind.replace('_', ' '):<19}{share:.4g}"
    yield (
        f"operations of the run {made['flops_of_the_run']:.4g} in {found['run_steps']} steps; at "
        f"the speed with data {made['seconds_of_the_run'] / 3600:.3g} h without validations"
    )
    yield (
        f"peak                 {matmul['flops_per_second'] / 1e12:.4g} TFLOP/s of one device: "
        f"product of two {matmul['size']}x{matmul['size']} matrices, the best of several"
    )
    planned = ", ".join(f"{name} {size / 1e6:.1f}" for name, size in memory.items())
    yield f"memory of one device {planned or 'not said'} MB (planned for a step; peak: ever in use)"
    hits = f", {start['cache_hits']} from the cache" if start["cache_hits"] else ""
    ready, total = f"{start['ready']:.2f} s", f"{start['total']:.2f}"
    parts = [f"{k} {v:.2f}" for k, v in start.items() if k not in ("ready", "total", "cache_hits")]
    yield f"start to first step  {ready}, done after {total}: {', '.join(parts)}{hits}"
    yield f"compilations         {found['compilations']} of the step, over all steps"
