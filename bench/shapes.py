"""The bench shapes, their FLOPs, and the facts about the machine that every result carries."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

FAMILIES = ("transformer_pp", "gpt2", "mixtral", "muddformer", "mup", "tokenformer")
JAX_FAMILIES = ("transformer_pp", "gpt2")  # those that baselines/jax_step.py has
EXPERTS, TOP_K, AUX = 8, 2, 0.01  # of mixtral: experts of the inner width F, of which two work on a token


@dataclass(frozen=True)
class Shape:
    """V vocabulary, L layers, D width, H heads, F inner width, B sequences of T tokens in a step; head untied."""

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
        """Tokens in one step."""
        return self.B * self.T

    def inner(self, family: str) -> int:
        """Width of the feed-forward block: GPT-2, muP two matrices of 4 D, TokenFormer of 3 D, others three of F."""
        return {"gpt2": 4 * self.D, "mup": 4 * self.D, "tokenformer": 3 * self.D}.get(family, self.F)

    @property
    def slots(self) -> int:
        """Tokens of each projection of a TokenFormer: with them its blocks have 12 D^2 weights, as GPT-2's."""
        return 3 * self.D // 4

    def matmul_weights(self, family: str) -> int:
        """Weights that enter a matmul for every token: the blocks, and the head once, tied or not."""
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
        """Training FLOPs: 6 x weights of the matmuls + 6 L T D for causal attention."""
        return 6 * self.matmul_weights(family) + 6 * self.L * self.T * self.D


def mudd_hidden(s: Shape, layer: int) -> int:
    """Width of the weight generator behind a block of a MUDDFormer: the next multiple of 64 above its outputs."""
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
    """High-water mark of this process' resident memory (VmHWM), MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no VmHWM")


def cpu_name() -> str:
    """Model name of the first CPU; a name without a number gets family and model, or two CPUs would share a page."""
    fields = (line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines())
    facts = {key.strip(): value.strip() for key, value in fields}
    name = facts.get("model name", "unknown CPU")
    if any(letter.isdigit() for letter in name) or "cpu family" not in facts:
        return name
    return f"{name} (family {facts['cpu family']}, model {facts.get('model', '?')})"


def cpu_flags() -> set[str]:
    """Instruction sets the kernel reports."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return set(line.split(":", 1)[1].split())
    return set()


def cpu_levels() -> list[str]:
    """Those of them that the matmuls of a result depend on."""
    return [n for n in ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16") if n in cpu_flags()]


# What the libraries of the baselines call our levels.
BASELINE_CAPS = {
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "avx512": {
        "ATEN_CPU_CAPABILITY": "avx512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512",
    },
}


def baseline_caps() -> dict[str, str]:
    """The environment that caps a baseline at MUDD_MAX_ISA."""
    return BASELINE_CAPS.get(os.environ.get("MUDD_MAX_ISA", ""), {})


def commit() -> str:
    """Short commit of the checkout, with + if files are changed."""
    here = Path(__file__).parent

    def git(*args: str) -> str:
        return subprocess.run(
            ["git", *args], cwd=here, capture_output=True, text=True, check=False
        ).stdout.strip()

    return (git("rev-parse", "--short", "HEAD") or "no git") + (
        "+" if git("status", "--porcelain", "-uno") else ""
    )


def usable_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0))
