"""What XLA compiles, by JAX's own events."""

import contextlib

import jax

COMPILED = "/jax/core/compile/backend_compile_duration"


@contextlib.contextmanager
def compiled_names():
    """The names of the functions that are compiled inside the block, such as "jit(pgd)"."""
    names = []

    def listen(event, duration, fun_name="", **_):
        if event == COMPILED:
            names.append(fun_name)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield names
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
