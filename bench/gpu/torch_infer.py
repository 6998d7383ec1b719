#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Inference of a small transformer in bf16, replayed from a CUDA graph."""
import torch
from torch import nn

import torch_meter
from torch_train import BLOCKS, TOKENS, WIDTH, Block


def make_step():
    torch.manual_seed(1)
    model = nn.Sequential(*[Block() for _ in range(BLOCKS)]).cuda().bfloat16().eval()
    batch = torch.randn(2, TOKENS, WIDTH, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # capture wants everything to have run once
            for _ in range(3):
                model(batch)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model(batch)
    # The graph reads the weights and the batch but does not keep them.
    return lambda keep=(model, batch): graph.replay()


if __name__ == "__main__":
    torch_meter.serve(make_step)
