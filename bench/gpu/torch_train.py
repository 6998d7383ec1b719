#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps of a small GPT (6 blocks of width 1024, bf16, random weights and tokens)."""
import torch
from torch import nn
from torch.nn import functional as F

import torch_meter

# The batch makes a step longer for the GPU than for the CPU: the GPU is what is limited.
WIDTH, HEADS, BLOCKS, TOKENS, BATCH, WORDS = 1024, 16, 6, 512, 24, 8192


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def mark_both(_module, _inputs, output):
    """A piece of the step ends here on the way there, and again when the gradient comes back."""
    torch_meter.mark()
    output.register_hook(torch_meter.mark)


def make_step():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Embedding(WORDS, WIDTH), *[Block() for _ in range(BLOCKS)],
                          nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)).cuda().bfloat16()
    for block in model[1:-2]:
        block.register_forward_hook(mark_both)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(WORDS, (BATCH, TOKENS + 1), device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        torch_meter.mark()
        loss.backward()
        torch_meter.mark()
        optimizer.step()
    return step


if __name__ == "__main__":
    torch_meter.serve(make_step)
