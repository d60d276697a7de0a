"""Train a model of the type of nanochat as a program of the race.

    python bench/race/nanochat.py --data=DIR --steps=1000 --seed=0 --out=result.json

The architecture follows nanochat/gpt.py of karpathy/nanochat (commit 92d63d4, July 2026): rotary positions, norms of
queries and keys, squared ReLU, norms without parameters, an untied head with almost zero weights, and capped logits.
Every other layer has value embeddings. Scalars weight the residual stream, each token is mixed with the previous one
(smear), and the state of the middle layer is subtracted at the end (backout). The feed-forward layer has 4 times the
width.

The rates and schedules are from scripts/base_train.py, with its scaling by batch, width and model size. As in
runs/runcpu.sh, its run of 6 layers on CPUs, heads have 64 channels and every layer has full attention. For this size
base_train.py would choose batches of 131,072 tokens, and runcpu.sh has 16,384.
"""

from __future__ import annotations

import math
import sys

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_muon import Muon
from torch_race import HEADS, LAYERS, WIDTH, Plan, main, short_warmup

HEAD_RATE, EMBED_RATE, MATRIX_RATE, SCALAR_RATE, SMEAR_RATE = 0.008, 0.3, 0.02, 0.5, 0.2
DECAY = 0.28  # of the matrices
WARMUP, WARMDOWN_FRACTION, FINAL_FRACTION = 40, 0.65, 0.05
MOMENTUM_WARMUP = 400  # steps from 0.85 to 0.97; the momentum falls to 0.90 in the warmdown
REFERENCE_TOKENS = 1 << 19  # a batch of the model of 12 layers, for which the rates are tuned
REFERENCE_WIDTH, REFERENCE_LAYERS, REFERENCE_HEADS = 768, 12, 6
ROPE_THETA = 100_000.0
QK_SCALE = 1.2  # of queries and of keys, after their norms
LOGIT_CAP = 15.0
GATE_CHANNELS, SMEAR_CHANNELS = 12, 24
HEAD_WIDTH = WIDTH // HEADS


def norm(x: Tensor) -> Tensor:
    """Divide by the root mean square of the last axis."""
    return F.rms_norm(x, (x.shape[-1],))


def has_values(layer: int) -> bool:
    """Return True if a layer has value embeddings: the last one, and every other before it."""
    return (LAYERS - 1 - layer) % 2 == 0


def linear(inputs: int, outputs: int, low: float, high: float) -> nn.Linear:
    """Return a layer without bias whose weights are uniform between two bounds."""
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.uniform_(layer.weight, low, high)
    return layer


def by_head(x: Tensor) -> Tensor:
    """View [B, T, WIDTH] as [B, T, HEADS, HEAD_WIDTH]."""
    return x.view(*x.shape[:-1], HEADS, HEAD_WIDTH)


def rotary_tables(length: int) -> tuple[Tensor, Tensor]:
    """Return cosines and sines [length, HEAD_WIDTH / 2] of the positions."""
    channels = torch.arange(0, HEAD_WIDTH, 2, dtype=torch.float32) / HEAD_WIDTH
    angles = torch.outer(torch.arange(length, dtype=torch.float32), ROPE_THETA**-channels)
    return angles.cos(), angles.sin()


class Attention(nn.Module):
    """Causal attention with rotary positions and, in some layers, gated value embeddings."""

    def __init__(self, layer: int) -> None:
        """Create the layers; the output layer starts at zero."""
        super().__init__()
        bound = math.sqrt(3 / WIDTH)
        self.q, self.k, self.v = (linear(WIDTH, WIDTH, -bound, bound) for _ in range(3))
        self.out = linear(WIDTH, WIDTH, 0.0, 0.0)
        self.value_gate = linear(GATE_CHANNELS, HEADS, 0.0, 0.02) if has_values(layer) else None

    def forward(self, x: Tensor, values: Tensor | None, tables: tuple[Tensor, Tensor]) -> Tensor:
        """Return the sum over the positions. values: value embeddings [B, T, WIDTH] of the tokens."""
        q, k, v = (by_head(layer(x)) for layer in (self.q, self.k, self.v))
        if self.value_gate is not None and values is not None:
            weight = 3 * torch.sigmoid(self.value_gate(x[..., :GATE_CHANNELS]))
            v = v + weight.unsqueeze(-1) * by_head(values)
        q, k = (norm(self._rotated(one.transpose(1, 2), tables)) for one in (q, k))
        scale = QK_SCALE**2 / math.sqrt(HEAD_WIDTH)
        mixed = F.scaled_dot_product_attention(q, k, v.transpose(1, 2), is_causal=True, scale=scale)
        added: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return added

    def _rotated(self, x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
        """Rotate channel i of [B, heads, T, HEAD_WIDTH] with channel i + HEAD_WIDTH / 2."""
        cosines, sines = tables
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * cosines + b * sines, b * cosines - a * sines), dim=-1)


class Block(nn.Module):
    """Attention and feed-forward layer, each after a norm and added to the input."""

    def __init__(self, layer: int) -> None:
        """Create the layers."""
        super().__init__()
        self.attention = Attention(layer)
        bound = 0.4 * math.sqrt(3 / WIDTH)
        self.up = linear(WIDTH, 4 * WIDTH, -bound, bound)
        self.down = linear(4 * WIDTH, WIDTH, 0.0, 0.0)

    def forward(self, x: Tensor, values: Tensor | None, tables: tuple[Tensor, Tensor]) -> Tensor:
        """Return the states [B, T, WIDTH] after the block."""
        x = x + self.attention(norm(x), values, tables)
        added: Tensor = self.down(F.relu(self.up(norm(x))).square())
        return x + added


class Model(nn.Module):
    """The language model. Its forward returns the mean loss."""

    cosines: Tensor
    sines: Tensor

    def __init__(self, vocab_size: int, seq_len: int) -> None:
        """Create the model with random weights."""
        super().__init__()
        self.embed = nn.Embedding(vocab_size, WIDTH)
        self.head = nn.Linear(WIDTH, vocab_size, bias=False)
        self.blocks = nn.ModuleList(Block(layer) for layer in range(LAYERS))
        layers = [layer for layer in range(LAYERS) if has_values(layer)]
        self.values = nn.ModuleDict({str(layer): nn.Embedding(vocab_size, WIDTH) for layer in layers})
        nn.init.normal_(self.embed.weight, std=0.8)
        nn.init.normal_(self.head.weight, std=0.001)
        bound = math.sqrt(3 / WIDTH)
        for table in self.values.parameters():
            nn.init.uniform_(table, -bound, bound)
        self.stream_scales = nn.Parameter(torch.linspace(1.15, 1.05, LAYERS))
        self.first_scales = nn.Parameter(torch.linspace(0.20, 0.05, LAYERS))
        self.smear_gate = linear(SMEAR_CHANNELS, 1, 0.0, 0.02)
        self.smear = nn.Parameter(torch.zeros(1))
        self.backout = nn.Parameter(torch.full((1,), 0.2))
        for name, angles in zip(("cosines", "sines"), rotary_tables(seq_len), strict=True):
            self.register_buffer(name, angles, persistent=False)

    def logits(self, ids: Tensor) -> Tensor:
        """Return the capped logits [B, T, vocab_size] of ids [B, T]."""
        x = norm(self.embed(ids))
        weight = self.smear * torch.sigmoid(self.smear_gate(x[:, 1:, :SMEAR_CHANNELS]))
        x = torch.cat((x[:, :1], x[:, 1:] + weight * x[:, :-1]), dim=1)
        first, middle = x, x
        tables = self.cosines[: ids.shape[1]], self.sines[: ids.shape[1]]
        for layer, block in enumerate(self.blocks):
            x = self.stream_scales[layer] * x + self.first_scales[layer] * first
            x = block(x, self.values[str(layer)](ids) if has_values(layer) else None, tables)
            if layer == LAYERS // 2:
                middle = x
        found: Tensor = self.head(norm(x - self.backout * middle))
        return LOGIT_CAP * torch.tanh(found / LOGIT_CAP)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss in nats."""
        return F.cross_entropy(self.logits(inputs).flatten(0, 1), targets.flatten())


def scaling_parameters(width: int, layers: int, heads: int, vocab_size: int) -> int:
    """Return the number of weights of blocks and head, from which base_train.py scales the decay."""
    gates = GATE_CHANNELS * heads * ((layers + 1) // 2)
    return 12 * layers * width**2 + gates + vocab_size * width


def batch_factor(plan: Plan) -> float:
    """Return the factor of the rates and of the decay for the size of the batch."""
    return math.sqrt(plan.batch_size * plan.seq_len / REFERENCE_TOKENS)


def decay_of(step: int, plan: Plan) -> float:
    """Return the weight decay of the matrices in a step: a cosine to zero."""
    reference = scaling_parameters(REFERENCE_WIDTH, REFERENCE_LAYERS, REFERENCE_HEADS, plan.vocab_size)
    size_factor = reference / scaling_parameters(WIDTH, LAYERS, HEADS, plan.vocab_size)
    return DECAY * batch_factor(plan) * size_factor * 0.5 * (1 + math.cos(math.pi * step / plan.steps))


def rate_factor(step: int, steps: int) -> float:
    """Return the factor of all rates in a step: linear warm-up, constant, linear warmdown."""
    warmup, warmdown = short_warmup(WARMUP, steps), round(WARMDOWN_FRACTION * steps)
    if step < warmup:
        return (step + 1) / warmup
    left = (steps - step) / max(1, warmdown)
    return 1.0 if left >= 1 else left + (1 - left) * FINAL_FRACTION


def momentum_of(step: int, steps: int) -> float:
    """Return Muon's momentum in a step."""
    if step < MOMENTUM_WARMUP:
        return 0.85 + 0.12 * step / MOMENTUM_WARMUP
    warmdown = round(WARMDOWN_FRACTION * steps)
    return 0.97 - 0.07 * max(0.0, (step - steps + warmdown) / warmdown)


def adamw_groups(model: Model, plan: Plan) -> list[dict[str, object]]:
    """Return the parameters that are no matrices of blocks, with their rates, betas and decay."""
    width_factor = (WIDTH / REFERENCE_WIDTH) ** -0.5
    factor = plan.rate * batch_factor(plan)
    embed_rate = factor * width_factor * EMBED_RATE
    smear = [model.smear_gate.weight, model.smear, model.backout]
    rows: list[tuple[list[Tensor], float, tuple[float, float], float]] = [
        ([model.head.weight], factor * width_factor * HEAD_RATE, (0.8, 0.96), 0.01),
        ([model.embed.weight], embed_rate, (0.8, 0.995), 0.001),
        ([*model.values.parameters()], 0.5 * embed_rate, (0.8, 0.995), 0.01),
        ([model.stream_scales], 0.01 * factor * SCALAR_RATE, (0.8, 0.95), 0.05),
        ([model.first_scales], factor * SCALAR_RATE, (0.96, 0.95), 0.0),
        (smear, plan.rate * SMEAR_RATE, (0.8, 0.95), 0.0),  # base_train.py does not scale this rate
    ]
    return [
        {"params": weights, "lr": rate, "peak": rate, "betas": betas, "weight_decay": decay}
        for weights, rate, betas, decay in rows
    ]


class Nanochat:
    """The recipe: Muon for the matrices of the blocks, AdamW for the other parameters, no clip."""

    def __init__(self, plan: Plan) -> None:
        """Create the model and both optimizers."""
        model = Model(plan.vocab_size, plan.seq_len)
        self.model: nn.Module = model
        self._plan = plan
        self._adamw = torch.optim.AdamW(adamw_groups(model, plan), eps=1e-10, fused=True)
        self._muon = Muon(model.blocks.parameters())

    def update(self, step: int) -> None:
        """Take a step of both optimizers."""
        plan = self._plan
        factor = rate_factor(step, plan.steps)
        for group in self._adamw.param_groups:
            group["lr"] = factor * group["peak"]
        self._adamw.step()
        matrix_rate = factor * plan.rate * batch_factor(plan) * MATRIX_RATE
        self._muon.step(matrix_rate, momentum_of(step, plan.steps), decay_of(step, plan))

    def compile_update(self) -> None:
        """Compile Muon's update, as nanochat does."""
        self._muon.compile()


if __name__ == "__main__":
    sys.exit(main(__doc__, Nanochat))
