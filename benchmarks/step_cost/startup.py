"""The time before the first step is done, and what jax traced and compiled in it."""

import contextlib
import os
import pathlib
import time
from typing import Any, NamedTuple

import jax

_IMPORTED = time.monotonic()
STAGES = {
    "/jax/core/compile/jaxpr_trace_duration": "tracing",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lowering",
    "/jax/core/compile/backend_compile_duration": "compiling",
}
HIT = "/jax/compilation_cache/cache_hits"


def since_start() -> float:
    """Seconds since this process began; where /proc does not say, since this module's import."""
    with contextlib.suppress(OSError, AttributeError):
        fields = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        began = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # Seconds after the machine's boot.
        return time.clock_gettime(time.CLOCK_BOOTTIME) - began
    return time.monotonic() - _IMPORTED


class Compiled(NamedTuple):
    """One event: a stage of making `function` ready took so many seconds."""

    stage: str
    function: str
    seconds: float


class Compilations:
    """Lists what jax traces, lowers and compiles from now on, and counts hits of its cache."""

    def __init__(self) -> None:
        self.events: list[Compiled] = []
        self.cache_hits = 0
        jax.monitoring.register_event_duration_secs_listener(self._add)
        jax.monitoring.register_event_listener(self._count)

    def _add(self, event: str, duration_secs: float, **more: Any) -> None:
        if event in STAGES:
            self.events.append(Compiled(STAGES[event], str(more.get("fun_name")), duration_secs))

    def _count(self, event: str, **more: Any) -> None:
        del more
        self.cache_hits += event == HIT

    def seconds(self, start: int = 0) -> dict[str, float]:
        """Seconds of each stage over the events from number `start` on."""
        return {
            stage: sum(event.seconds for event in self.events[start:] if event.stage == stage)
            for stage in STAGES.values()
        }

    def lowered(self, start: int = 0) -> list[str]:
        """What was made ready, by name, from event `start` on; the longest to lower first.

        Lowered is also what was compiled before, and is read.
        """
        found = [event for event in self.events[start:] if event.stage == "lowering"]
        return [event.function for event in sorted(found, key=lambda event: -event.seconds)]
