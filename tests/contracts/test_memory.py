"""Long texts are read in strips: the default statistics never hold a map of 8,192 x 8,192 weights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headscope.model.fold import has_numba

LENGTH, HEADS = 8192, 9
MAP_MEGABYTES = HEADS * LENGTH**2 * 4 / 1e6  # all maps of one layer: 2,416 MB
MOST_MEGABYTES = 900

SCRIPT = f"""
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaModel

from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Batch, Layout, Tokens
from headscope.statistics import select_statistics, stream

config = LlamaConfig(
    hidden_size=576, intermediate_size=1536, num_hidden_layers=1, num_attention_heads={HEADS},
    num_key_value_heads=3, vocab_size=1000, max_position_embeddings={LENGTH},
)
torch.manual_seed(0)
torch.set_num_threads(1)
model = AttentionModel(LlamaModel(config).eval())


def run(length):
    ids, real = torch.randint(0, 1000, (1, length)), torch.ones(1, length, dtype=torch.bool)
    tokens = Tokens(real, ids, torch.arange(length)[None])
    batch = Batch({{"input_ids": ids, "attention_mask": real.long()}}, Layout(decoder=tokens), (0,))
    statistics = select_statistics(None)
    for _ in stream(model, [batch], statistics):
        pass
    return sum(len(statistic.table()) for statistic in statistics)


def peak():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1e3


run(64)  # compiles
before = peak()
rows = run({LENGTH})
print(rows, peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not has_numba(), reason="numba is not installed")
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
def test_one_layer_of_8192_tokens_takes_less_memory_than_its_maps() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    rows, megabytes = map(float, done.stdout.split())
    assert rows > HEADS
    assert megabytes < MOST_MEGABYTES < MAP_MEGABYTES / 2
