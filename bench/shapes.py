"""The bench shapes, their FLOPs, and the description of the machine that every result has."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

FAMILIES = ("transformer_pp", "gpt2", "mixtral", "muddformer", "mup", "tokenformer")
JAX_FAMILIES = ("transformer_pp", "gpt2")  # families of baselines/jax_step.py
EXPERTS, TOP_K, AUX = 8, 2, 0.01  # for mixtral: experts of inner width F, two of which process each token


@dataclass(frozen=True)
class Shape:
    """A model and its batch: vocabulary V, L layers, width D, H heads, inner width F, B sequences of T tokens; untied
    head.
    """

    name: str
    V: int
    L: int
    D: int
    H: int
    F: int
    T: int
    B: int

    @property
    def tokens(self) -> int:
        """Number of tokens in one step."""
        return self.B * self.T

    def inner(self, family: str) -> int:
        """Return the inner width of the feed-forward block: 4 D for GPT-2 and muP, 3 D for TokenFormer (two matrices
        each), else F.
        """
        return {"gpt2": 4 * self.D, "mup": 4 * self.D, "tokenformer": 3 * self.D}.get(family, self.F)

    @property
    def slots(self) -> int:
        """Number of parameter tokens of each TokenFormer projection: its blocks then have 12 D^2 weights, as in
        GPT-2.
        """
        return 3 * self.D // 4

    def matmul_weights(self, family: str) -> int:
        """Return the number of weights that enter a matmul for every token: the blocks, and the head once, tied or
        not.
        """
        ffn = (2 if family in ("gpt2", "mup", "tokenformer") else 3) * self.D * self.inner(family)
        if family == "tokenformer":
            return self.L * (8 * self.D * self.slots + ffn) + self.V * self.D
        if family == "mixtral":
            ffn = TOP_K * ffn + self.D * EXPERTS
        mixing = sum(
            mudd_hidden(self, n) * (self.D + (1 if n == self.L - 1 else 4) * (n + 2)) for n in range(self.L)
        )
        blocks = self.L * (4 * self.D * self.D + ffn) + (mixing if family == "muddformer" else 0)
        return blocks + self.V * self.D

    def flops_per_token(self, family: str) -> int:
        """Return the training FLOPs of a token: 6 x (matmul weights) + 6 L T D for causal attention."""
        return 6 * self.matmul_weights(family) + 6 * self.L * self.T * self.D


def mudd_hidden(s: Shape, layer: int) -> int:
    """Return the width of a MUDDFormer block's weight generator: its number of outputs, rounded up to a multiple of
    64.
    """
    return (4 * (layer + 2) // 64 + 1) * 64


SHAPES = {
    s.name: s
    for s in (
        Shape("9M", 8192, 6, 256, 4, 704, 256, 8),
        Shape("55M", 16384, 12, 512, 8, 1408, 512, 4),
        Shape("162M", 50304, 12, 768, 12, 2048, 512, 2),
    )
}


def peak_rss_mib() -> float:
    """Return the peak resident memory of this process (VmHWM) in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no VmHWM")


CPUINFO = Path("/proc/cpuinfo")


def cpu_name() -> str:
    """Return the name of the CPU; a name without a number is extended by family and model, to be unique."""
    if platform.machine() == "aarch64":  # Linux has numbers instead of a name
        from mudd_core import _core

        return _core.cpu_name()
    fields = (line.split(":", 1) for line in CPUINFO.read_text().split("\n\n")[0].splitlines())
    facts = {key.strip(): value.strip() for key, value in fields}
    name = facts.get("model name", "unknown CPU")
    if any(letter.isdigit() for letter in name) or "cpu family" not in facts:
        return name
    return f"{name} (family {facts['cpu family']}, model {facts.get('model', '?')})"


def cpu_flags() -> set[str]:
    """Return the instruction sets that Linux reports."""
    for line in CPUINFO.read_text().splitlines():
        if line.startswith(("flags", "Features")):
            return set(line.split(":", 1)[1].split())
    return set()


def cpu_levels() -> list[str]:
    """Return the instruction sets that matmul results depend on."""
    known = ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve", "bf16")
    return [name for name in known if name in cpu_flags()]


# The names of mudd_core's levels in the libraries of the baselines.
BASELINE_CAPS = {
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "avx512": {
        "ATEN_CPU_CAPABILITY": "avx512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512",
    },
}


def baseline_caps() -> dict[str, str]:
    """Return the environment variables that cap a baseline at MUDD_MAX_ISA."""
    return BASELINE_CAPS.get(os.environ.get("MUDD_MAX_ISA", ""), {})


def commit() -> str:
    """Return the short commit hash of the checkout, with + if files are changed."""
    here = Path(__file__).parent

    def git(*args: str) -> str:
        return subprocess.run(
            ["git", *args], cwd=here, capture_output=True, text=True, check=False
        ).stdout.strip()

    return (git("rev-parse", "--short", "HEAD") or "no git") + (
        "+" if git("status", "--porcelain", "-uno") else ""
    )


def usable_cores() -> int:
    """Return the number of cores that this process may run on."""
    return len(os.sched_getaffinity(0))
