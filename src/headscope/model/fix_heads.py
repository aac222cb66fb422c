"""Fix heads permanently: remove their queries and keys from the weights and let them attend by a fixed pattern.

Values and output projection stay. The smaller model computes the same function as the model under the edit `Fixed`.
Both are compared; a difference is an error.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from pathlib import Path

from headscope.config.command_line import command_line
from headscope.errors import HeadscopeError, choices
from headscope.heads import Head, HeadSet, Site
from headscope.model.anatomy import anatomy, weight_of
from headscope.model.attention_model import AttentionModel
from headscope.model.fixed_attention import FixedHeads, get_fixed_heads, set_fixed_heads
from headscope.model.fixed_patterns import PATTERNS, Fixed, Patterns, patterns_by_head
from headscope.model.head_slices import Slice, block_indices
from headscope.model.load import as_model
from headscope.model.surgery import check_same_outputs, extend_cut

RAGANATO = PATTERNS[:7]  # in the order of the paper
SYNTAX = "such as 3.2=previous,encoder.*.0-6=raganato"


def fix(model: AttentionModel | str | Path, patterns: Patterns | str) -> AttentionModel:
    """A smaller model in which these heads attend by fixed patterns.

    patterns  {"3.2": "previous", "4.*": "end"}, or the same as text: `3.2=previous,4.*=end`
    """
    model = as_model(model)
    if isinstance(patterns, str):
        patterns = read_patterns(patterns, model.heads, where="`patterns`")
    by_head = patterns_by_head(patterns, model.heads)
    projections = check_fix(model, by_head)
    smaller = copy.deepcopy(model.model)
    for name, (query, key) in projections.items():
        site, core = model.attention_modules[name][0], smaller.get_submodule(name)
        heads = site.heads(len(site.numbers or ()))
        fixed = get_fixed_heads(core)
        old: tuple[str | None, ...] = (None,) * len(heads) if fixed is None else fixed.patterns
        new = tuple(by_head.get(head, before) for head, before in zip(heads, old, strict=True))
        # Queries and keys have rows only for heads that were not fixed before. These are their new patterns.
        new_of_learned = [after for before, after in zip(old, new, strict=True) if before is None]
        width = weight_of(core.get_submodule(query)).shape[0] // len(new_of_learned)
        starts = [i * width for i, pattern in enumerate(new_of_learned) if pattern is None]
        rows = block_indices(starts, width)
        for projection in (core.get_submodule(query), core.get_submodule(key)):
            for parameter in ("weight", "bias"):
                if getattr(projection, parameter) is not None:
                    Slice(projection, parameter, 0, rows).keep()
        set_fixed_heads(core, FixedHeads(new, query, key, width, site.stack == "decoder"))
    kept = {site: site.numbers or () for site in model.sites}
    smaller_model = model.wrap_changed(smaller, cut=extend_cut(model, kept))
    check_same_outputs(model, smaller_model, Fixed(by_head))
    return smaller_model


def check_fix(model: AttentionModel, patterns: Mapping[Head, str]) -> dict[str, tuple[str, str]]:
    """{attention module of these heads: (its query projection, its key projection)}; raises if they cannot be fixed."""
    if model.is_open:
        raise HeadscopeError(
            "the model is being watched or edited", fix="Leave the with block before fixing heads"
        )
    if not patterns:
        raise HeadscopeError("no head to fix", where="fix", expected=SYNTAX)
    again = sorted(set(patterns) & set(model.fixed))
    if again:
        raise HeadscopeError(
            f"{again[0]} is fixed already: {model.fixed[again[0]]}", where=model.name
        )
    projections = {}
    for name, sites in model.attention_modules.items():
        if any(head.site in sites for head in patterns):
            projections[name] = _query_and_key(model, name)
            _check_shared_layers(sites, patterns)
    return projections


def _query_and_key(model: AttentionModel, name: str) -> tuple[str, str]:
    """The names of the query and key projections inside an attention module."""
    fixed = get_fixed_heads(model.model.get_submodule(name))
    if fixed is not None:
        return fixed.query, fixed.key
    parts = anatomy(model)[model.attention_modules[name][0]]
    inside = [
        projection.removeprefix(f"{name}.")
        for projection in (parts.query, parts.key, parts.value)
        if projection is not None and projection.startswith(f"{name}.")
    ]
    # One layer computes all three (GPT-2), or queries and keys are changed after their projections (rotary positions).
    if len(set(inside)) < 3:
        raise HeadscopeError(
            f"the queries and keys of {type(model.model).__name__} are not the outputs of separate linear layers, "
            "so they cannot be removed",
            where=model.name,
            expected="a model such as BERT, RoBERTa, DistilBERT, BART, Marian or T5",
            fix="Leave the weights as they are and edit the model: Fixed, or "
            + command_line("importance", mode="fixed"),
        )
    return inside[0], inside[1]


def _check_shared_layers(sites: tuple[Site, ...], patterns: Mapping[Head, str]) -> None:
    """Raise if a head has different patterns in layers that share a module."""
    for number in sites[0].numbers or ():
        heads = [Head(site.stack, site.layer, number) for site in sites]
        if len({patterns.get(head) for head in heads}) > 1:
            raise HeadscopeError(
                f"{next(head for head in heads if head in patterns)} cannot be fixed alone: layers share their weights",
                expected=f"one pattern for {', '.join(map(str, heads))}",
            )


def read_patterns(text: str, heads: tuple[Head, ...], *, where: str = "`fix`") -> dict[Head, str]:
    """Patterns from text, `3.2,4.*=previous,encoder.*.0-6=raganato`, or from a file with such lines.

    raganato: the seven patterns of the paper, in its order, for the named heads of each layer.
    """
    patterns: dict[Head, str] = {}
    names: list[str] = []  # of heads whose pattern comes after a later comma
    for item in _read_text(text, where).split(","):
        name, equals, pattern = (part.strip() for part in item.partition("="))
        names.append(name)
        if equals:
            assigned = _assign(",".join(names), pattern, heads, where)
            again = sorted(set(assigned) & set(patterns))
            if again:
                raise HeadscopeError(
                    f"{again[0]} is given twice", where=f'{where} "{text}"', expected="each once"
                )
            patterns |= assigned
            names = []
    if names:
        raise HeadscopeError(
            f'"{names[-1]}" has no pattern', where=f'{where} "{text}"', expected=SYNTAX
        )
    return patterns


def _read_text(text: str, where: str) -> str:
    if "=" in text or not Path(text).is_file():
        return text
    try:
        lines = [line.strip() for line in Path(text).read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as cause:
        raise HeadscopeError(
            "not a readable text file", where=text, expected=f"lines {SYNTAX}"
        ) from cause
    return ",".join(line for line in lines if line and not line.startswith("#"))


def _assign(names: str, pattern: str, heads: tuple[Head, ...], where: str) -> dict[Head, str]:
    """The pattern of each named head."""
    if pattern not in (*PATTERNS, "raganato"):
        raise HeadscopeError(
            f'"{pattern}" is not a fixed pattern',
            where=where,
            expected=choices(pattern, [*PATTERNS, "raganato"]),
        )
    selected = HeadSet(names, among=heads)
    if pattern != "raganato":
        return patterns_by_head(dict.fromkeys(selected, pattern), heads)
    patterns: dict[Head, str] = {}
    for site, numbers in selected.by_site().items():
        if len(numbers) > len(RAGANATO):
            raise HeadscopeError(
                f"{len(numbers)} heads of {site} for the {len(RAGANATO)} patterns of raganato",
                where=where,
                expected=f"at most {len(RAGANATO)} in each layer, as {site.stack}.*.0-6",
            )
        for number, name in zip(sorted(numbers), RAGANATO, strict=False):
            patterns[Head(site.stack, site.layer, number)] = name
    return patterns_by_head(patterns, heads)


def format_patterns(patterns: Mapping[Head, str], among: Iterable[Head]) -> str:
    """One line per pattern, in the format of `read_patterns`. among: the heads of the model."""
    every_head = tuple(among)
    lines = []
    for name in sorted(set(patterns.values())):
        heads = [head for head in patterns if patterns[head] == name]
        lines.append(f"{HeadSet(heads, among=every_head)}={name}\n")
    return "".join(lines)
