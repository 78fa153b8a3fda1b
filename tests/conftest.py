"""Every test runs offline and with one torch thread."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"

import torch

torch.set_num_threads(1)
