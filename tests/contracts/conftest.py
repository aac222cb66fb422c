"""Contracts use the tiny models and the reference twins that lie beside this directory."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

torch.set_num_threads(1)  # tiny matrices: a second thread only waits, and on a busy machine it waits long
