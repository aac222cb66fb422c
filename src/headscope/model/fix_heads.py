"""Heads fixed for good: their queries and keys are cut out, values and output stay, a pattern does the rest.

The result is the model under the edit `Fixed`, and proven to be: it is compared with it, and refused where it differs.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from pathlib import Path

from headscope.config.command_line import command_line
from headscope.errors import HeadscopeError, choices
from headscope.heads import Head, HeadSet, Site
from headscope.model.anatomy import Parts, anatomy, weight_of
from headscope.model.attention_model import AttentionModel
from headscope.model.fixed_attention import FixedHeads, get_fixed_heads, set_fixed_heads
from headscope.model.fixed_patterns import PATTERNS, Fixed, Patterns, patterns_by_head
from headscope.model.load import as_model
from headscope.model.manifest import Cut
from headscope.model.surgery import Slice, block_indices, check_same_outputs, origin_of

RAGANATO = PATTERNS[:7]  # in the order of the paper
SYNTAX = "such as 3.2=previous,encoder.*.0-6=raganato"


def fix(model: AttentionModel | str | Path, patterns: Patterns) -> AttentionModel:
    """A smaller model in which these heads attend by fixed patterns: fix(model, {"3.2": "previous", "4.*": "end"})."""
    model = as_model(model)
    wanted = patterns_by_head(patterns, model.heads)
    projections = check_fix(model, wanted)
    smaller = copy.deepcopy(model.model)
    for name, (query, key) in projections.items():
        site, core = model.attention_modules[name][0], smaller.get_submodule(name)
        before = get_fixed_heads(core)
        numbers = site.numbers or ()
        old = (None,) * len(numbers) if before is None else before.patterns
        new = tuple(
            wanted.get(Head(site.stack, site.layer, number), pattern)
            for number, pattern in zip(numbers, old, strict=True)
        )
        kept = [place for place, learned in enumerate(_learned(old)) if new[learned] is None]
        width = weight_of(core.get_submodule(query)).shape[0] // len(_learned(old))
        rows = block_indices([place * width for place in kept], width)
        for projection in (core.get_submodule(query), core.get_submodule(key)):
            for parameter in ("weight", "bias"):
                if getattr(projection, parameter) is not None:
                    Slice(projection, parameter, 0, rows).keep()
        set_fixed_heads(core, FixedHeads(new, query, key, width, site.stack == "decoder"))
    cut = AttentionModel(
        smaller,
        model.tokenizer,
        name=model.name,
        revision=model.revision,
        untrained=model.untrained,
        notes=model.notes,
        cut=Cut(
            origin_of(model),
            {site: site.numbers or () for site in model.sites},
            () if model.cut is None else model.cut.silent,
            () if model.cut is None else model.cut.history,
        ),
        reading=model.reading,
    )
    check_same_outputs(model, cut, Fixed(wanted))
    return cut


def _learned(patterns: tuple[str | None, ...]) -> list[int]:
    return [place for place, name in enumerate(patterns) if name is None]


def check_fix(model: AttentionModel, wanted: Mapping[Head, str]) -> dict[str, tuple[str, str]]:
    """The attention modules of these heads, with the names of their query and key projections; or a refusal."""
    if model.is_open:
        raise HeadscopeError(
            "the model is being watched or edited", fix="Leave the with block before fixing heads"
        )
    if not wanted:
        raise HeadscopeError("no head to fix", where="fix", expected=SYNTAX)
    again = sorted(set(wanted) & set(model.fixed))
    if again:
        raise HeadscopeError(
            f"{again[0]} is fixed already: {model.fixed[again[0]]}", where=model.name
        )
    found = {}
    for name, sites in model.attention_modules.items():
        if any(head.site in sites for head in wanted):
            found[name] = _projections(model, name)
            _check_shared(sites, wanted)
    return found


def _projections(model: AttentionModel, name: str) -> tuple[str, str]:
    known = get_fixed_heads(model.model.get_submodule(name))
    if known is not None:
        return known.query, known.key
    part: Parts = anatomy(model)[model.attention_modules[name][0]]
    made = (part.query, part.key, part.value)
    inside = [
        one.removeprefix(f"{name}.")
        for one in made
        if one is not None and one.startswith(f"{name}.")
    ]
    if len(set(inside)) < 3:
        raise HeadscopeError(
            f"the queries and keys of {type(model.model).__name__} are not what linear layers of their own give, "
            "so heads cannot lose theirs",
            where=model.name,
            expected="a model such as BERT, RoBERTa, DistilBERT, BART, Marian or T5",
            fix="Leave the weights as they are and edit the model: Fixed, or "
            + command_line("importance", mode="fixed"),
        )
    return inside[0], inside[1]


def _check_shared(sites: tuple[Site, ...], wanted: Mapping[Head, str]) -> None:
    """Layers that share a module share what its heads attend to."""
    for number in sites[0].numbers or ():
        heads = [Head(site.stack, site.layer, number) for site in sites]
        names = {wanted.get(head) for head in heads}
        if len(names) > 1:
            raise HeadscopeError(
                f"{next(head for head in heads if head in wanted)} cannot be fixed alone: layers share their weights",
                expected=f"one pattern for {', '.join(map(str, heads))}",
            )


def read_patterns(text: str, heads: tuple[Head, ...], *, where: str = "`fix`") -> dict[Head, str]:
    """Patterns as they are written, `3.2,4.*=previous,encoder.*.0-6=raganato`, or in a file with such lines.

    raganato: the seven patterns of the paper, in its order, for the named heads of each layer.
    """
    found: dict[Head, str] = {}
    waiting: list[str] = []
    for word in _text(text, where).split(","):
        named, equals, pattern = (part.strip() for part in word.partition("="))
        waiting.append(named)
        if equals:
            here = _read(",".join(waiting), pattern, heads, where)
            twice = sorted(set(here) & set(found))
            if twice:
                raise HeadscopeError(
                    f"{twice[0]} is given twice", where=f'{where} "{text}"', expected="each once"
                )
            found |= here
            waiting = []
    if waiting:
        raise HeadscopeError(
            f'"{waiting[-1]}" has no pattern', where=f'{where} "{text}"', expected=SYNTAX
        )
    return found


def _text(text: str, where: str) -> str:
    if "=" in text or not Path(text).is_file():
        return text
    try:
        lines = [line.strip() for line in Path(text).read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as cause:
        raise HeadscopeError(
            "not a readable text file", where=text, expected=f"lines {SYNTAX}"
        ) from cause
    return ",".join(line for line in lines if line and not line.startswith("#"))


def _read(named: str, pattern: str, heads: tuple[Head, ...], where: str) -> dict[Head, str]:
    if pattern not in (*PATTERNS, "raganato"):
        raise HeadscopeError(
            f'"{pattern}" is no fixed pattern',
            where=where,
            expected=choices(pattern, [*PATTERNS, "raganato"]),
        )
    these = HeadSet(named, among=heads)
    if pattern != "raganato":
        return patterns_by_head(dict.fromkeys(these, pattern), heads)
    found: dict[Head, str] = {}
    for site, numbers in these.by_site().items():
        if len(numbers) > len(RAGANATO):
            raise HeadscopeError(
                f"{len(numbers)} heads of {site} for the {len(RAGANATO)} patterns of raganato",
                where=where,
                expected=f"at most {len(RAGANATO)} in each layer, as {site.stack}.*.0-6",
            )
        for number, name in zip(sorted(numbers), RAGANATO, strict=False):
            found[Head(site.stack, site.layer, number)] = name
    return patterns_by_head(found, heads)


def format_patterns(patterns: Mapping[Head, str], among: Iterable[Head]) -> str:
    """A line for each pattern, as `read_patterns` reads it from a file; among: the heads of the model."""
    everyone = tuple(among)
    named = {
        name: [head for head in patterns if patterns[head] == name]
        for name in sorted(set(patterns.values()))
    }
    return "".join(f"{HeadSet(heads, among=everyone)}={name}\n" for name, heads in named.items())
