"""Train a model of the type of nanoGPT as a program of the race.

    python bench/race/nanogpt.py --data=DIR --steps=1000 --seed=0 --out=result.json

The architecture follows model.py of karpathy/nanoGPT (commit 3adf61e, November 2025): LayerNorm without bias, GELU,
learned positions, a feed-forward layer of 4 times the width, and a head that shares the embedding's weights.

The settings are published for its small model, config/train_shakespeare_char.py: rate 1e-3, betas 0.9 and
0.99, 100 warm-up steps and a cosine to a tenth. Weight decay 0.1, clip 1 and `bias = False` are the defaults of
train.py. Dropout is 0, as in train.py and in the README's command for CPUs. The published batch has 64 sequences.
"""

from __future__ import annotations

import math
import sys

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_race import HEADS, LAYERS, WIDTH, Plan, main, short_warmup

RATE = 1e-3
FINAL_FRACTION = 0.1
WARMUP = 100
BETAS = (0.9, 0.99)
DECAY = 0.1
CLIP = 1.0
DEVIATION = 0.02  # of the initial weights


class Block(nn.Module):
    """Attention and feed-forward layer, each after a LayerNorm and added to the input."""

    def __init__(self) -> None:
        """Create the layers."""
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH, bias=False)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.attention_out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.ffn_norm = nn.LayerNorm(WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the states [B, T, WIDTH] after the block."""
        heads = self.qkv(self.attention_norm(x)).unflatten(-1, (3, HEADS, WIDTH // HEADS))
        q, k, v = heads.transpose(1, 3).unbind(2)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attention_out(mixed.transpose(1, 2).flatten(2))
        added: Tensor = self.down(F.gelu(self.up(self.ffn_norm(x))))
        return x + added


class Model(nn.Module):
    """The language model. Its forward returns the mean loss."""

    def __init__(self, vocab_size: int, seq_len: int) -> None:
        """Create the model with random weights; the last layers of the blocks start smaller."""
        super().__init__()
        self.embed = nn.Embedding(vocab_size, WIDTH)
        self.position = nn.Embedding(seq_len, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.final_norm = nn.LayerNorm(WIDTH, bias=False)
        for name, weight in self.named_parameters():
            if weight.dim() > 1:
                is_last = name.endswith(("attention_out.weight", "down.weight"))
                nn.init.normal_(weight, std=DEVIATION / math.sqrt(2 * LAYERS) if is_last else DEVIATION)

    def logits(self, ids: Tensor) -> Tensor:
        """Return the logits [B, T, vocab_size] of ids [B, T]."""
        x = self.embed(ids) + self.position.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.final_norm(x), self.embed.weight)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss in nats."""
        return F.cross_entropy(self.logits(inputs).flatten(0, 1), targets.flatten())


def rate_of(step: int, steps: int, peak: float) -> float:
    """Return the learning rate of a step: linear warm-up, then a cosine to a tenth of the peak."""
    warmup = short_warmup(WARMUP, steps)
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    cosine = 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))
    return peak * (FINAL_FRACTION + (1 - FINAL_FRACTION) * cosine)


class NanoGpt:
    """The recipe: AdamW with clipped gradients; matrices and embeddings decay."""

    def __init__(self, plan: Plan) -> None:
        """Create the model and the optimizer, which is fused because that is the fastest on CPUs."""
        self.model: nn.Module = Model(plan.vocab_size, plan.seq_len)
        self._plan = plan
        weights = list(self.model.parameters())
        groups = [
            {"params": [w for w in weights if w.dim() > 1], "weight_decay": DECAY},
            {"params": [w for w in weights if w.dim() == 1], "weight_decay": 0.0},
        ]
        self._optimizer = torch.optim.AdamW(groups, lr=RATE, betas=BETAS, fused=True)

    def update(self, step: int) -> None:
        """Clip the gradients to norm 1 and take a step."""
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        for group in self._optimizer.param_groups:
            group["lr"] = rate_of(step, self._plan.steps, self._plan.rate * RATE)
        self._optimizer.step()

    def compile_update(self) -> None:
        """Do nothing: the fused optimizer has nothing to compile."""


if __name__ == "__main__":
    sys.exit(main(__doc__, NanoGpt))
