"""Cut models are made of the tiny ones that lie beside this directory."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

torch.set_num_threads(1)
