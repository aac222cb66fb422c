"""`ModelStructure`: the attention sites, heads and modules of a model."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch

from headscope.heads import Head, Site
from headscope.model.fixed_attention import get_fixed_heads
from headscope.model.sample_inputs import accepts

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from headscope.model.seam import Seam


class ModelStructure:
    """The structure of a model. Base class of `AttentionModel`, which sets the attributes.

    _expected  {stack: number of sites}, from the configuration
    _sites     {address: site}; an address is a site without head numbers (stack and layer), the value has them
    """

    model: PreTrainedModel
    name: str
    _expected: dict[str, int]
    _seam: Seam
    _sites: dict[Site, Site]

    def __repr__(self) -> str:
        widths: dict[str, list[int]] = {}
        for site in self.sites:
            widths.setdefault(site.stack, []).append(len(site.numbers or ()))
        stacks = [
            f"{stack} {len(heads)} x {' or '.join(map(str, sorted(set(heads))))}"
            for stack, heads in widths.items()
        ]
        return (
            f"AttentionModel({self.name!r}, {type(self.model).__name__}: {', '.join(stacks)} heads)"
        )

    @property
    def sites(self) -> tuple[Site, ...]:
        """Every call of an attention module: stack and layer."""
        return tuple(self._sites.values())

    @property
    def heads(self) -> tuple[Head, ...]:
        """Every head, by stack, layer and number."""
        return tuple(head for site in self.sites for head in site.heads(len(site.numbers or ())))

    @property
    def attention_modules(self) -> dict[str, tuple[Site, ...]]:
        """{name of an attention module: its sites}, in the order of first calls.

        A module that several layers share (ALBERT) has several sites.
        """
        return {name: tuple(sites) for name, sites in self._seam.sites.items()}

    @property
    def fixed(self) -> dict[Head, str]:
        """{head without queries and keys: the fixed pattern by which it attends}."""
        patterns: dict[Head, str | None] = {}
        for name, sites in self._seam.sites.items():
            fixed = get_fixed_heads(self.model.get_submodule(name))
            if fixed is not None:
                for site in sites:
                    heads = site.heads(len(site.numbers or ()))
                    patterns.update(zip(heads, fixed.patterns, strict=True))
        return {head: name for head, name in sorted(patterns.items()) if name is not None}

    @property
    def shared_layers(self) -> dict[str, list[list[int]]]:
        """{stack: groups of layers that call the same attention module}; empty if layers share no modules."""
        groups: dict[str, list[list[int]]] = {}
        for sites in self._seam.sites.values():
            for stack in dict.fromkeys(site.stack for site in sites):
                layers = [site.layer for site in sites if site.stack == stack]
                if len(layers) > 1:
                    groups.setdefault(stack, []).append(layers)
        return groups

    def index_of(self, head: Head) -> int:
        """The index of a head in the tensors of its site; its number, if no heads before it were pruned."""
        return self._sites[head.site].index_of(head.head)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        device: torch.device = self.model.device
        return device

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether the model has cross-attention."""
        return "cross" in self._expected

    @cached_property
    def takes_segments(self) -> bool:
        """Whether the model takes `token_type_ids`, which distinguish the two texts of a pair."""
        return accepts(self.model, "token_type_ids")
