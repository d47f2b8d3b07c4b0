"""What a compiled program does, counted in XLA's text of it: operations, traffic, messages.

A loop counts as often as it runs. Traffic is the sum of operands and results of all kernels, as if
no cache helped; arithmetic inside a fused kernel costs none.
"""

import collections
import dataclasses
import math
import re
from collections.abc import Iterator

BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2}
BYTES |= {"f32": 4, "s32": 4, "u32": 4, "f64": 8, "s64": 8, "u64": 8}
DTYPES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64"}
HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")
INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*?)\)(.*)$")
ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")
TRIPS = re.compile(r'known_trip_count"?[:=]\{"?n"?[:=]"?(\d+)')
# Instructions that move nothing, and the ends of asynchronous ones.
FREE = {"parameter", "get-tuple-element", "tuple", "bitcast", "constant", "after-all"}
FREE |= {"while", "conditional", "call", "partition-id", "replica-id", "iota"}
COLLECTIVE = re.compile(r"^(all-reduce|all-gather|reduce-scatter|collective-permute|all-to-all)")


@dataclasses.dataclass
class Program:
    """Totals of one run of a program, on each device.

    Attributes:
      flops: operations of convolutions and matrix products by data type; 2 a multiply-add.
      traffic: bytes that kernels read and write.
      kernels: number of kernels.
      num_collectives: number of messages among devices.
      collective_bytes: sum of their sizes.
      convolutions: number of convolutions by data type, each counted once.
    """

    flops: collections.Counter[str]
    traffic: float = 0.0
    kernels: int = 0
    num_collectives: int = 0
    collective_bytes: float = 0.0
    convolutions: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)


@dataclasses.dataclass(frozen=True)
class _Instruction:
    name: str
    type: str
    operation: str
    operands: tuple[str, ...]
    rest: str


def read(text: str) -> Program:
    """Counts a program.

    Args:
      text: the optimised module, as `compiled.as_text()` returns it.
    """
    computations, entry = _computations(text)
    program = Program(collections.Counter())
    for name, times, is_fused in _calls(computations, entry):
        types = {one.name: one.type for one in computations[name]}
        for one in computations[name]:
            _count(program, one, [types.get(n, "") for n in one.operands], times, is_fused)
    return program


def _computations(text: str) -> tuple[dict[str, list[_Instruction]], str]:
    computations: dict[str, list[_Instruction]] = {}
    current: list[_Instruction] = []
    entry = ""
    for line in text.splitlines():
        if head := HEAD.match(line):
            current = computations[head[2]] = []
            entry = head[2] if head[1] else entry
        elif match := INSTRUCTION.match(line):
            operands = (
                part.split()[-1].lstrip("%") for part in match[4].split(",") if part.strip()
            )
            current.append(_Instruction(match[1], match[2], match[3], tuple(operands), match[5]))
    return computations, entry


def _calls(
    computations: dict[str, list[_Instruction]], name: str, times: int = 1, fused: bool = False
) -> Iterator[tuple[str, int, bool]]:
    """(computation, how often it runs, whether it is inside a kernel), from the entry on."""
    yield name, times, fused
    for one in computations[name]:
        for role, callees in re.findall(
            r"(calls|body|branch_computations|true_computation|false_computation|to_apply)="
            r"\{?((?:%?[\w.\-]+(?:, )?)+)",
            one.rest,
        ):
            if role == "to_apply" and one.operation != "call":
                continue  # The sum of a reduction.
            count = _trips(one, computations) if one.operation == "while" else 1
            inside = fused or one.operation in ("fusion", "custom-call")
            for callee in callees.split(", "):
                if callee.lstrip("%") in computations:
                    yield from _calls(computations, callee.lstrip("%"), times * count, inside)


def _trips(loop: _Instruction, computations: dict[str, list[_Instruction]]) -> int:
    """How often a loop runs: XLA states it for CPUs and GPUs; for TPUs its condition does."""
    if stated := TRIPS.search(loop.rest):
        return int(stated[1])
    condition = re.search(r"condition=%?([\w.\-]+)", loop.rest)
    compared = computations.get(condition[1], []) if condition else []
    bounds = [one.operands[0] for one in compared if one.operation == "constant" and one.operands]
    return int(bounds[0]) if len(bounds) == 1 and bounds[0].isdigit() else 1


def _count(
    program: Program, one: _Instruction, types: list[str], times: int, is_fused: bool
) -> None:
    """Adds an instruction, whose operands have these types, to the totals."""
    if products := _multiplications(one, types):
        dtype = DTYPES.get(ARRAY.findall(types[0])[0][0], "float32")
        program.flops[dtype] += 2 * products * times
        if "conv" in one.operation or "conv" in one.rest.partition("metadata")[0]:
            program.convolutions[dtype] += 1
    if is_fused or one.operation in FREE or one.operation.endswith("-done"):
        return
    size = _bytes(one.type)
    if COLLECTIVE.match(one.operation):
        program.num_collectives += times
        # The type of these has operands and results.
        is_pair = one.operation in ("all-gather-start", "collective-permute-start")
        size = size / 2 if is_pair else size
        program.collective_bytes += size * times
        return
    program.kernels += times
    program.traffic += (size + sum(map(_bytes, types))) * times


def _multiplications(one: _Instruction, types: list[str]) -> int:
    """Multiply-adds of a convolution or a matrix product; 0 for everything else."""
    attributes = one.rest
    target = re.search(r'custom_call_target="([^"]+)"', attributes)
    name = target[1] if target else one.operation
    shapes = [_shapes(text)[0] for text in (*types[:2], one.type) if _shapes(text)]
    if len(shapes) < 3:
        return 0
    left, right, result = shapes
    if labels := re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", attributes):
        if "BackwardFilter" in name:  # (input, gradient of the output) -> gradient of the kernel.
            kernel, output = result, right
        elif "BackwardInput" in name:  # (gradient of the output, kernel) -> that of the input.
            kernel, output = right, left
        else:
            kernel, output = right, result
        features = kernel[labels[2].index("o")]
        return math.prod(output) // max(features, 1) * math.prod(kernel)
    if contracting := re.search(r'lhs_contracting_dim(?:s=\{|ensions":\[)"?(\d*)', attributes):
        if name == "dot" or "gemm" in name or "matmul" in name:
            return math.prod(result) * (left[int(contracting[1])] if contracting[1] else 1)
    return 0


def _shapes(text: str) -> list[list[int]]:
    return [
        [int(n) for n in dims.split(",") if n]
        for dtype, dims in ARRAY.findall(text)
        if dtype in BYTES
    ]


def _bytes(text: str) -> float:
    return float(
        sum(
            BYTES[dtype] * math.prod(int(n) for n in dims.split(",") if n)
            for dtype, dims in ARRAY.findall(text)
            if dtype in BYTES
        )
    )
