"""Seconds of the phases of a step, each alone on all devices, and of whole steps."""

import functools
import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cat_jax.experiment.experiment import Experiment
from cat_jax.step.state import NetworkState, TrainState
from cat_jax.step.train_step import Batch, Metrics, StepFn, examples, finish
from cat_jax.types import DEVICES, Array, Views

PHASES = ("attack", "theta", "phi", "closing")
LONG_ENOUGH = 0.25  # Seconds of products of matrices, for one size.
SIZES = (1024, 2048, 4096, 8192)


class Spread(NamedTuple):
    """Of repeated measurements, in seconds."""

    median: float
    least: float
    most: float


def spread(seconds: list[float]) -> Spread:
    """Median, least and most."""
    return Spread(statistics.median(seconds), min(seconds), max(seconds))


def interleaved(runs: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each run, `rounds` times in turn, after one round that is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for counted in [False] + [True] * rounds:
        for name, run in runs.items():
            started = time.perf_counter()
            jax.block_until_ready(run())
            if counted:
                seconds[name].append(time.perf_counter() - started)
    return seconds


def phase_runs(
    experiment: Experiment, devices: list[jax.Device], state: TrainState, batch: Batch, key: Array
) -> dict[str, Callable[[], Any]]:
    """A run of each of `PHASES`, on what those before it make of the state and the batch."""
    phases, average = experiment.phases, experiment.average
    pmap = functools.partial(jax.pmap, axis_name=DEVICES, devices=devices)

    def attack(state: TrainState, batch: Batch, key: Array) -> Any:
        """With what comes before: pixels to [0, 1], augmentation."""
        parts = examples(experiment.augment, phases.num_parts, state.step, batch, key)
        nets = (state.classifier, state.mask_net)
        nets, views, _ = phases.calibrate(nets, parts, state.step)
        return nets, views, parts

    def closing(state: TrainState, theta: NetworkState, views: Views) -> Any:
        """With what comes after: means over the devices, the average of the weights."""
        theta = phases.close(theta, views)
        return finish(state.replace(classifier=theta), {}, average)[0]

    attack_fn = pmap(attack, in_axes=(None, 0, None), out_axes=(None, 0, 0))
    theta_fn = pmap(phases.update_classifier, in_axes=(None, 0, 0, None), out_axes=None)
    phi_fn = pmap(phases.update_mask_net, in_axes=(None, 0, 0), out_axes=None)
    closing_fn = pmap(closing, in_axes=(None, None, 0), out_axes=None)
    nets, views, parts = attack_fn(state, batch, key)
    return {
        "attack": lambda: attack_fn(state, batch, key),
        "theta": lambda: theta_fn(nets[0], views, parts, state.step),
        "phi": lambda: phi_fn(nets, views, parts["label"]),
        "closing": lambda: closing_fn(state, nets[0], views),
    }


class Trainer:
    """Holds the state, which a step donates, so that steps can be run at any place."""

    def __init__(self, step_fn: StepFn, state: TrainState, key: Array) -> None:
        self.step_fn, self.state, self.key = step_fn, state, key

    def step(self, batch: Batch) -> Metrics:
        """One more step."""
        self.state, metrics = self.step_fn(self.state, batch, self.key)
        return metrics

    def in_a_row(self, batches: Iterable[Batch]) -> None:
        """Steps as the loop of training makes them: each is waited for when the next one runs."""
        before = None
        for batch in batches:
            metrics = self.step(batch)
            jax.block_until_ready(before)
            before = metrics
        jax.block_until_ready(self.state)


def with_and_without_data(
    trainer: Trainer,
    make_batch: Callable[[int], Batch],
    first: int,
    num_steps: int,
    in_one_call: int,
) -> dict[str, list[float]]:
    """Seconds of a step with batches made for it, and with one batch again and again.

    Blocks of at least `num_steps` steps of both kinds in turn, four of each; the batches begin at
    step `first`, and each call of the step function makes so many steps.
    """
    seconds: dict[str, list[float]] = {"with data": [], "one batch": []}
    calls = -(-num_steps // in_one_call)
    one, numbers = make_batch(first), itertools.count(first, in_one_call)
    kinds: dict[str, Callable[[], Iterable[Batch]]] = {
        "with data": lambda: map(make_batch, itertools.islice(numbers, calls)),
        "one batch": lambda: itertools.repeat(one, calls),
    }
    for _ in range(4):
        for kind, batches in kinds.items():
            started = time.perf_counter()
            trainer.in_a_row(batches())
            seconds[kind].append((time.perf_counter() - started) / (calls * in_one_call))
    return seconds


def matmul_peak(device: jax.Device, dtype: Any) -> dict[str, float]:
    """FLOP/s of the product of two large square matrices on one device, the best that was seen."""
    product = jax.jit(jnp.matmul)
    best = 0.0
    for size in SIZES:
        a = jax.device_put(jax.random.normal(jax.random.key(0), (size, size), dtype), device)
        product(a, a).block_until_ready()
        seconds: list[float] = []
        while len(seconds) < 10 and sum(seconds) < LONG_ENOUGH:
            started = time.perf_counter()
            jax.block_until_ready([product(a, a) for _ in range(4)])
            seconds.append((time.perf_counter() - started) / 4)
        best = max(best, 2 * size**3 / min(seconds))
        if min(seconds) > LONG_ENOUGH / 4:
            break
    return {"size": size, "flops_per_second": best}
