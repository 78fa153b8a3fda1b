"""How many programs of a kernel a multiprocessor holds at once, from what the kernel takes of it."""

from __future__ import annotations

from dataclasses import dataclass

WARP_THREADS = 32
SUBPARTITIONS = 4
"""Of a multiprocessor, each with a scheduler and a quarter of the registers."""
REGISTER_UNIT = 256
"""Registers are given to warps in multiples of it."""
SHARED_UNIT = 128
"""Bytes of shared memory, to programs likewise."""
RESERVED_SHARED_BYTES = 1 << 10
"""Per program."""


@dataclass(frozen=True)
class Multiprocessor:
    """Its limits: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"."""

    warps: int
    programs: int
    registers: int
    shared_bytes: int


MULTIPROCESSORS = {
    (8, 0): Multiprocessor(warps=64, programs=32, registers=1 << 16, shared_bytes=164 << 10),
    (9, 0): Multiprocessor(warps=64, programs=32, registers=1 << 16, shared_bytes=228 << 10),
}
"""By compute capability."""


@dataclass(frozen=True)
class Occupancy:
    programs: int
    """Resident on one multiprocessor."""
    share: float
    """Of the warps it could hold."""
    limited_by: str
    """warps, programs, registers or shared memory: the tightest limit, the first of equal ones."""


def occupancy(
    capability: tuple[int, int], registers_per_thread: int, shared_bytes: int, num_warps: int
) -> Occupancy:
    """By the rules of NVIDIA's cuda_occupancy.h, from CUDA 13.

    Registers go to warps, and each warp to one subpartition. A program that fits nowhere gets 0.
    """
    limits = MULTIPROCESSORS[capability]
    warp_registers = round_up(registers_per_thread * WARP_THREADS, REGISTER_UNIT)
    warps_by_registers = limits.registers // SUBPARTITIONS // warp_registers * SUBPARTITIONS
    program_shared = round_up(shared_bytes + RESERVED_SHARED_BYTES, SHARED_UNIT)
    if warp_registers * round_up(num_warps, SUBPARTITIONS) > limits.registers:
        warps_by_registers = 0
    programs_by = {
        "warps": limits.warps // num_warps,
        "programs": limits.programs,
        "registers": warps_by_registers // num_warps,
        "shared memory": limits.shared_bytes // program_shared,
    }
    limited_by = min(programs_by, key=programs_by.__getitem__)
    programs = programs_by[limited_by]
    return Occupancy(programs, programs * num_warps / limits.warps, limited_by)


def round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
