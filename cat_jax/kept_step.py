"""A step whose compiled program is kept, and read back while the step is traced.

JAX too keeps what it has compiled, but reads it when all is traced: on a CPU, where XLA links the
program anew, that takes as long as tracing. Here what the same experiment ran last is read
meanwhile, and used only if the step that was traced is the same, to the letter.
"""

import contextlib
import hashlib
import logging
import os
import pathlib
import pickle
import zlib
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jaxlib
from jax.experimental import serialize_executable
from jax.experimental.compilation_cache import compilation_cache

from cat_jax import backend, files
from cat_jax.state import TrainState
from cat_jax.train_step import Batch, Metrics, StepFn
from cat_jax.types import Array

logger = logging.getLogger(__name__)


class Program(NamedTuple):
    """What was compiled, and the name of what it was compiled from."""

    name: str
    compiled: jax.stages.Compiled


class KeptStep:
    """A step function, (state, batch, key) -> (state, metrics), that starts sooner the next time.

    It is compiled once, for arguments of the shapes of its first call, and kept in steps/ of the
    folder where JAX keeps what it compiles. On accelerators, with several processes, and without
    such a folder it is the step function that it was given, compiled and kept by JAX.
    """

    def __init__(self, step_fn: StepFn, experiment: str, devices: Sequence[jax.Device]) -> None:
        """Begins to read, in a thread.

        Args:
          step_fn: what `PARALLEL` of `cat_jax.train_step` makes of a step.
          experiment: which one it is. Others of the same name are told apart, but start later.
          devices: those that the step was made for.
        """
        self._step_fn, self._devices = step_fn, list(devices)
        self._ready: StepFn | None = None
        folder = _folder(devices)
        if folder is None:
            self._ready = step_fn
            return
        self._folder, self._circumstances = folder, _circumstances(devices)
        self._last = folder / f"last-{_digest(experiment, *self._circumstances)}.txt"
        pool = ThreadPoolExecutor(1)
        self._reading: Future[Program | None] = pool.submit(self._read_last)
        pool.shutdown(wait=False)

    def __call__(self, state: TrainState, batch: Batch, key: Array) -> tuple[TrainState, Metrics]:
        """One step."""
        return self.prepare(state, batch, key)(state, batch, key)

    def prepare(self, state: TrainState, batch: Batch, key: Array) -> StepFn:
        """The program for arguments like these, made ready at the first call; it is not run."""
        if self._ready is None:
            self._ready = self._make_ready(state, batch, key)
        return self._ready

    def _make_ready(self, *arguments: Any) -> StepFn:
        lowered: jax.stages.Lowered = self._step_fn.lower(*arguments)  # type: ignore[attr-defined]
        text = lowered.as_text()
        if "callback" in text:  # By its address in this process.
            return self._step_fn
        outside = map(str, (lowered.in_tree, lowered.out_tree, lowered.args_info))
        name = _digest(text, *outside, *self._circumstances)
        program = self._reading.result()
        if program is None or program.name != name:
            program = self._read(name) or self._compile(name, lowered)
            self._note_last(name)
        return program.compiled

    def _read_last(self) -> Program | None:
        try:
            return self._read(self._last.read_text(encoding="utf-8"))
        except OSError:
            return None

    def _note_last(self, name: str) -> None:
        with contextlib.suppress(OSError):  # Said by `_compile`.
            files.write_text(self._last, name)

    def _read(self, name: str) -> Program | None:
        path = self._path(name)
        if not path.exists():
            return None
        try:
            # As one piece: many small ones would each wait for the thread that traces.
            executable, in_tree, out_tree = pickle.loads(zlib.decompress(path.read_bytes()))
            compiled = serialize_executable.deserialize_and_load(
                executable, in_tree, out_tree, execution_devices=self._devices
            )
        except Exception as error:  # Of many kinds, by what is damaged.
            logger.warning("%s cannot be used; the step is compiled again: %s", path, error)
            return None
        return Program(name, compiled)

    def _compile(self, name: str, lowered: jax.stages.Lowered) -> Program:
        compiled = _compile_anew(lowered)
        try:
            made = zlib.compress(pickle.dumps(serialize_executable.serialize(compiled)), 1)
            with files.replacing(self._path(name)) as path:
                path.write_bytes(made)
        except Exception as error:  # Also of XLA, for what it cannot write.
            logger.warning("The compiled step is not kept for the next start: %s", error)
        return Program(name, compiled)

    def _path(self, name: str) -> pathlib.Path:
        return self._folder / f"{name}.zlib"


def _folder(devices: Sequence[jax.Device]) -> pathlib.Path | None:
    values = jax.config.values
    folder = values["jax_compilation_cache_dir"]
    on_cpu = {device.platform for device in devices} == {"cpu"}
    if not (folder and values["jax_enable_compilation_cache"] and on_cpu):
        return None
    return pathlib.Path(folder) / "steps" if jax.process_count() == 1 else None


def _circumstances(devices: Sequence[jax.Device]) -> list[str]:
    """What else decides what the same program is compiled to."""
    return [
        *(jax.__version__, jaxlib.__version__, backend.processor()),
        *(os.environ.get("XLA_FLAGS", ""), str(sorted(jax.config.values.items()))),
        *(str(device.id) for device in devices),
    ]


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:32]


def _compile_anew(lowered: jax.stages.Lowered) -> jax.stages.Compiled:
    """By XLA, and not from a cache of JAX: what was read from one is written without its code."""

    def switch(on: bool) -> None:
        jax.config.update("jax_enable_compilation_cache", on)
        compilation_cache.reset_cache()  # JAX looks at the switch only at the first use.

    switch(False)
    try:
        # Off is what it is anyhow. Without options JAX may give what it has in memory.
        return lowered.compile({"xla_embed_ir_in_executable": False})
    finally:
        switch(True)
