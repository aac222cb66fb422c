"""Sets of heads to ablate, by kind.

head    a single head
only    all heads of a site except one
site    all heads of a site
layer   all heads of a layer; in a decoder, of its self-attention and its cross-attention
all     all heads
pair    two heads
shared  a head of a module that several layers share, in all of these layers (ALBERT)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, get_args

from headscope.errors import HeadscopeError, choices
from headscope.heads import Head, HeadSet, Site
from headscope.model.attention_model import AttentionModel

Kind = Literal["head", "only", "site", "layer", "all", "pair", "shared"]
KINDS: tuple[str, ...] = get_args(Kind)


@dataclass(frozen=True)
class Variant:
    """A set of heads to ablate. named: what its kind refers to, e.g. the head, or for `only` the head that remains."""

    kind: Kind
    named: str
    heads: tuple[Head, ...]

    @property
    def site(self) -> Site | None:
        """The site of the heads; None if they are of several sites."""
        sites = {head.site for head in self.heads}
        return next(iter(sites)) if len(sites) == 1 else None


def variants_of(
    model: AttentionModel,
    kind: Kind,
    among: Iterable[Head] | None = None,
    *,
    sites: Iterable[Site] | None = None,
) -> list[Variant]:
    """All variants of a kind, from the top layer down.

    among  heads for single heads and pairs; all by default
    sites  the sites in use; all by default
    """
    if kind not in KINDS:
        raise HeadscopeError(
            f'"{kind}" is not a kind of ablation', where="`kind`", expected=choices(kind, KINDS)
        )

    def height(site: Site) -> tuple[bool, int]:
        """Sort key from the bottom up: the layers of an encoder are below those of its decoder."""
        return not (site.stack == "encoder" and model.is_encoder_decoder), site.layer

    sites = sorted(model.sites if sites is None else sites, key=height, reverse=True)
    heads = {site: [head for head in model.heads if head.site == site] for site in sites}
    if kind == "head":
        single = set(model.heads if among is None else among)
        return [Variant(kind, str(h), (h,)) for site in sites for h in heads[site] if h in single]
    if kind == "only":
        return [
            Variant(kind, str(head), tuple(other for other in heads[site] if other != head))
            for site in sites
            if len(heads[site]) > 1
            for head in heads[site]
        ]
    if kind == "site":
        return [Variant(kind, str(site), tuple(heads[site])) for site in sites]
    if kind == "layer":
        # A layer of a decoder has two sites: self-attention and cross-attention.
        layers: dict[str, tuple[Head, ...]] = {}
        for site in sites:
            layer = f"{'encoder' if site.stack == 'encoder' else 'decoder'}.{site.layer}"
            layers[layer] = layers.get(layer, ()) + tuple(heads[site])
        return [Variant(kind, layer, of_layer) for layer, of_layer in layers.items()]
    if kind == "all":
        return [Variant(kind, "all", tuple(head for site in sites for head in heads[site]))]
    if kind == "pair":
        paired = sorted(HeadSet(model.heads if among is None else among, among=model.heads))
        return [Variant(kind, f"{a}+{b}", (a, b)) for a, b in combinations(paired, 2)]
    return _shared_heads(model)


def _shared_heads(model: AttentionModel) -> list[Variant]:
    """Variants of the kind `shared`."""
    groups = [
        sites
        for sites in model.attention_modules.values()
        if len(sites) > 1 and len({site.stack for site in sites}) == 1
    ]
    if not groups:
        raise HeadscopeError(
            f"no two layers of {model.name} share their heads",
            where='`kind="shared"`',
            expected="e.g. ALBERT",
        )
    return [
        Variant(
            "shared",
            f"{sites[0].stack}.*.{head}",
            tuple(Head(site.stack, site.layer, head) for site in sites),
        )
        for sites in groups
        for head in sites[0].numbers or ()
    ]
