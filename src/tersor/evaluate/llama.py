"""A small Llama-style language model: RMS norms, rotary positions, causal attention, gated units; no biases."""

import torch
from torch import nn
from torch.nn import functional

from tersor.evaluate.workloads import CONTEXT


class Llama(nn.Module):
    """Scores of the next character at every place: 0.8 million parameters at width 128."""

    def __init__(self, classes: int, width: int = 128, layers: int = 4, heads: int = 4, hidden: int = 352) -> None:
        super().__init__()
        self.embed = nn.Embedding(classes, width)
        self.blocks = nn.ModuleList(Block(width, heads, hidden) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.out = nn.Linear(width, classes, bias=False)
        size = width // heads
        angles = torch.outer(torch.arange(CONTEXT).float(), 10_000 ** (-torch.arange(0, size, 2) / size)).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        for p in self.parameters():
            if p.ndim > 1:
                nn.init.normal_(p, std=0.05)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """Return scores, shape (samples, classes, places), of characters, shape (samples, places)."""
        x = self.embed(codes)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        scores: torch.Tensor = self.out(self.norm(x)).transpose(1, 2)
        return scores


class Block(nn.Module):
    """One layer: attention, then a gated unit, each added to what comes in."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.qkv, self.mix = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Return the layer's output, of the shape of `x`: (samples, places, width)."""
        parts = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in parts)
        q, k = (t * cos + torch.cat([-t.chunk(2, -1)[1], t.chunk(2, -1)[0]], -1) * sin for t in (q, k))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mix(mixed.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        made: torch.Tensor = x + self.down(functional.silu(self.gate(y)) * self.up(y))
        return made
