"""What launch/gpu_report.sh runs: stages with a time budget each, and one report of them all.

    python benchmarks/gpu_report.py --out=FOLDER [--seconds=480] [--scale=small]

Each stage is a process of its own with a share of the time. One that fails, or takes too long, is
told in the report and does not keep the others from running. FOLDER gets report.json, report.md,
written anew after each stage, and log.txt; what is made on the way is in RUNS, by default
FOLDER/runs.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree
from typing import Any

import gpu_targets
from gpu_stages import ORDER, SCALES, Stage, stages

ROOT = pathlib.Path(__file__).parent.parent
GRACE = 25.0  # Seconds from the signal to stop until a stage is killed: it saves meanwhile.


def run(stage: Stage, seconds: float, log: pathlib.Path) -> dict[str, Any]:
    """Runs a stage for so many seconds at most; how it ended, how long it took, what it found."""
    started = time.monotonic()
    ended = "done"
    with open(log, "a") as stream:
        stream.write(f"\n==== {stage.name}: python {' '.join(stage.command)}\n")
        stream.flush()
        # What a background job starts ignores interrupts, as the job does, unless it heeds them.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        process = subprocess.Popen(
            [sys.executable, *stage.command],
            cwd=ROOT,
            env=os.environ | dict(stage.environment),
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            ended = "stopped: its time was over"
        finally:  # Also where this process is asked to end.
            stop(process)
    if process.returncode:
        how = f"status {process.returncode} ({last_line(log)})"
        ended = f"{ended}, {how}" if ended != "done" else f"failed: {how}"
    found: dict[str, Any] = {"ended": ended, "seconds": time.monotonic() - started}
    try:
        return found | {"found": stage.read()}
    except (OSError, ValueError, KeyError, IndexError, ZeroDivisionError) as error:
        return found | {"found": None, "unread": f"{type(error).__name__}: {error}"}
    except xml.etree.ElementTree.ParseError as error:
        return found | {"found": None, "unread": str(error)}


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a process that still runs: training saves first, and pytest says how far it came."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def last_line(log: pathlib.Path) -> str:
    """The last thing said, which mostly is the error, fit for a table."""
    lines = log.read_text(errors="replace").split("\n")
    said = [line.strip() for line in lines if line.strip()]
    return said[-1].replace("|", "/")[:200]


def main() -> None:
    """Runs the stages in their order, and writes the report after each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True, help="folder of the report, made if not there")
    parser.add_argument("--seconds", type=float, default=480.0, help="of all stages together")
    parser.add_argument("--scale", choices=[*SCALES], default="full")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # A background job is started with Ctrl-C ignored, and so would be the stages.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    deadline = time.monotonic() + options.seconds
    folder, scale = pathlib.Path(options.out).resolve(), SCALES[options.scale]
    runs = pathlib.Path(os.environ.get("RUNS") or folder / "runs").resolve()
    cifar = pathlib.Path(os.environ.get("CIFAR_WORKDIR") or runs / "cifar10").resolve()
    work = runs / "report"
    shutil.rmtree(work, ignore_errors=True)  # Of an earlier report.
    for made in (folder, work):
        made.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {"scale": options.scale, "seconds": options.seconds}
    report |= {"machine": machine(), "stages": {}}
    known = stages(scale, work, cifar)
    for name in ORDER:
        if name not in known:
            continue
        stage, left = known[name], deadline - time.monotonic()
        allowed = min(stage.seconds, left - (GRACE if name == ORDER[-1] else scale.reserve))
        if importlib.util.find_spec(stage.needs) is None:
            ended = f"left out: {stage.needs} is not installed"
            report["stages"][name] = {"ended": ended, "found": None}
        elif allowed < stage.least:
            report["stages"][name] = {"ended": "not begun: no time was left", "found": None}
        else:
            report["stages"][name] = run(stage, allowed, folder / "log.txt")
        print(f"{name}: {report['stages'][name]['ended']}", flush=True)
        report["targets"] = gpu_targets.verdicts(report["stages"], options.scale == "full")
        write(folder / "report.json", json.dumps(report, indent=1) + "\n")
        write(folder / "report.md", gpu_targets.markdown(report))


def machine() -> str:
    """What nvidia-smi says, if it is there."""
    try:
        done = subprocess.run(["nvidia-smi"], capture_output=True, text=True, check=False)
    except OSError as error:
        return f"nvidia-smi: {error}"
    print(done.stdout)
    return done.stdout


def write(path: pathlib.Path, text: str) -> None:
    """Whole or not at all."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text)
    temporary.replace(path)


if __name__ == "__main__":
    main()
