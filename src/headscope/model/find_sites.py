"""Find the sites of a model: record the attention calls of one test forward pass and compare with the configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from headscope.errors import HeadscopeError, reason
from headscope.heads import Site
from headscope.model.families import Family
from headscope.model.sample_inputs import run_base_model, sample_inputs

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from headscope.model.attention_model import AttentionModel
    from headscope.model.seam import Seam


def expected_sites(model: PreTrainedModel, family: Family, name: str) -> dict[str, int]:
    """{stack: number of sites}, according to the configuration.

    A model class may be only the encoder or the decoder of its family. The other stack and `cross` are then left out.
    """
    config = model.config
    expected = family.layers(config)
    if "cross" in expected:
        modules = {module.rpartition(".")[2] for module, _ in model.named_modules()}
        missing = {"encoder", "decoder"} - modules
        if len(missing) == 1:
            missing.add("cross")
            return {stack: count for stack, count in expected.items() if stack not in missing}
        return expected
    is_decoder = "encoder" in expected and getattr(config, "is_decoder", False)
    if is_decoder or getattr(config, "add_cross_attention", False):
        raise HeadscopeError(
            f"{type(model).__name__} is configured as a decoder for another model's encoder, which is not supported",
            where=name,
            expected="is_decoder and add_cross_attention false in config.json",
        )
    return expected


def record_calls(model: AttentionModel, seam: Seam) -> list[tuple[str, int]]:
    """(module name, number of heads) of every attention call of a test forward pass."""
    calls: list[tuple[str, int]] = []
    seam.recorded_calls = calls
    try:
        with model.watched(), torch.inference_mode():
            run_base_model(model, sample_inputs(model, batch=1))
    except RuntimeError as cause:
        if model.model.dtype == torch.float32:
            raise
        raise HeadscopeError(
            f"{type(model.model).__name__} cannot compute in {str(model.model.dtype).removeprefix('torch.')} "
            f"({reason(cause)})",
            where=model.name,
            fix="Load it with dtype float32",
        ) from cause
    finally:
        seam.recorded_calls = None
    return calls


def assign_sites(
    calls: Sequence[tuple[str, int]],
    expected: Mapping[str, int],
    kept: Mapping[Site, tuple[int, ...]],
    family: Family,
    *,
    where: str,
) -> tuple[dict[Site, Site], dict[str, list[Site]]]:
    """Assign a site to every attention call: the next layer of the call's stack.

    calls     (module name, number of heads) of every attention call of a forward pass
    expected  {stack: number of sites}
    kept      {site: numbers of the heads that are left} of a pruned model; empty if the model is unpruned

    Returns two dicts: {address: site}, where an address is a site without numbers of heads, and {module name: its sites
    in the order of calls}. Sites without heads make no call, so their layers are skipped.
    """
    headless = {Site(site.stack, site.layer, ()) for site, numbers in kept.items() if not numbers}
    layers = {
        stack: iter([layer for layer in range(count) if Site(stack, layer) not in headless])
        for stack, count in expected.items()
    }
    counts = Counter(site.stack for site in headless)
    by_address = {site: site for site in headless}
    by_module: dict[str, list[Site]] = {}
    for name, heads in calls:
        sites = by_module.setdefault(name, [])
        stack = family.stack(name, len(sites))
        counts[stack] += 1
        # With more calls than layers, any number will do: the error is raised below.
        layer = next(layers.get(stack, iter(())), counts[stack])
        address = Site(stack, layer)
        site = Site(stack, layer, kept.get(address, tuple(range(heads))))
        assert len(site.numbers or ()) == heads, (
            f"{site} attends with {heads} heads, not {site.numbers}"
        )
        sites.append(site)
        by_address[address] = site
    if counts != Counter(expected):
        called = ", ".join(
            f"{counts[stack]} of {count} in {stack}" for stack, count in expected.items()
        )
        raise HeadscopeError(
            f"a test forward pass called {called} attention sites, so results would be incomplete",
            where=where,
            fix="Use another model: this class attends in a way that headscope does not support",
        )
    order = {stack: i for i, stack in enumerate(expected)}
    ordered = sorted(by_address.items(), key=lambda item: (order[item[0].stack], item[0].layer))
    return dict(ordered), by_module
