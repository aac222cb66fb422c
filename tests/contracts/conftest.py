"""Contracts use the tiny models and the reference twins that lie beside this directory."""

import torch

torch.set_num_threads(
    1
)  # tiny matrices: a second thread only waits, and on a busy machine it waits long
