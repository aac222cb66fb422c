"""Tiny matrices: a second thread only waits, and on a busy machine it waits long."""

import torch

torch.set_num_threads(1)
