"""The second pass: a model reads the texts again, and every file of this package is asked for its questions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import torch

from headscope.analysis.examples._cases import Found
from headscope.analysis.examples._question import Asked, ExampleRole, Questions, RoleQuestion, Text
from headscope.data.batches import batches
from headscope.data.encode import Encoder, Long
from headscope.data.examples import Example
from headscope.heads import Head, Site
from headscope.model.attention import Attention
from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Tokens


@cache
def _functions(name: str) -> tuple[Callable[..., Any], ...]:
    """Those of this name in the files of this package that have one."""
    files = sorted(
        one.name
        for one in iter_modules([str(Path(__file__).parent)])
        if not one.name.startswith("_")
    )
    modules = [import_module(f"{__package__}.{file}") for file in files]
    return tuple(getattr(module, name) for module in modules if hasattr(module, name))


def questions_among_words(text: Text, site: Site, roles: Iterable[ExampleRole]) -> Questions:
    """What all files ask of the words of a text at this site, for those of the roles that they know."""
    asked: Questions = {}
    for among_words in _functions("among_words"):
        asked |= among_words(text, site, roles)
    return asked


def question_among_tokens(role: str, query: Tokens, key: Tokens, row: int) -> RoleQuestion | None:
    """What is asked of the tokens of the sequence `row`; None for a role that does not speak of them."""
    asked = (among_tokens(role, query, key, row) for among_tokens in _functions("among_tokens"))
    return next((question for question in asked if question is not None), None)


def read_words(
    model: AttentionModel,
    texts: list[Text],
    asked: Asked,
    found: Found,
    max_length: int | None,
    batch_size: int,
) -> None:
    """Look at the attention between words. Texts that are too long are left out."""

    def look(attention: Attention) -> None:
        site = attention.site
        heads = asked.get(site, {})
        posed = [questions_among_words(texts[number], site, heads) for number in attention.examples]
        if not any(posed):
            return
        weights = attention.between_words().weights.float().cpu().numpy()
        for row, (number, questions) in enumerate(zip(attention.examples, posed, strict=True)):
            labels = _sides(texts[number].example, site.stack)
            for role, question in questions.items():
                queries, keys = question.right.shape
                for head in heads[role]:
                    cells = weights[row, site.place(head), :queries, :keys]
                    place = Head(site.stack, site.layer, head)
                    found.look(place, role, question, cells, labels, number, texts[number].example)

    _read(model, [text.example for text in texts], look, "skip", max_length, batch_size)


def _sides(example: Example, stack: str) -> tuple[list[str], list[str]]:
    """The words that look and those looked at; the same list where it is one text."""
    source, target = (
        [] if text is None or isinstance(text, str) else list(text)
        for text in (example.first, example.second)
    )
    if stack == "cross":
        return target, source
    one = target if stack == "decoder" and target else source
    return one, one


def read_tokens(
    model: AttentionModel,
    examples: list[Example],
    asked: Asked,
    found: Found,
    max_length: int | None,
    batch_size: int,
) -> None:
    """Look at the attention between tokens. Texts that are too long are truncated."""

    def look(attention: Attention) -> None:
        site = attention.site
        roles = {role: heads for role, heads in asked.get(site, {}).items() if not role.relation}
        if not roles:
            return
        weights = attention.weights.float().cpu().numpy()
        for row, number in enumerate(attention.examples):
            labels = labels_of(model, attention, row)
            for role, heads in roles.items():
                question = question_among_tokens(role.name, attention.query, attention.key, row)
                if question is not None:
                    for head in heads:
                        place = Head(site.stack, site.layer, head)
                        cells = weights[row, site.place(head)]
                        found.look(place, role, question, cells, labels, number, examples[number])

    _read(model, examples, look, "truncate", max_length, batch_size)


def labels_of(model: AttentionModel, attention: Attention, row: int) -> tuple[list[str], list[str]]:
    """The tokens that look and those looked at; the same list where it is one text."""
    query = _written(model, attention.query, row)
    return query, query if attention.within_one_text else _written(model, attention.key, row)


def _written(model: AttentionModel, tokens: Tokens, row: int) -> list[str]:
    assert tokens.ids is not None
    tokenizer: Any = model.tokenizer
    ids = tokens.ids[row].tolist()
    raw = tokenizer.convert_ids_to_tokens(ids)
    return [tokenizer.decode([i]).strip() or str(token) for i, token in zip(ids, raw, strict=True)]


def _read(
    model: AttentionModel,
    examples: list[Example],
    look: Callable[[Attention], None],
    long: Long,
    max_length: int | None,
    batch_size: int,
) -> None:
    """Run the model over the examples; `look` is shown the attention, with the numbers of the examples."""
    if not examples:
        return
    encoder = Encoder(model, max_length=max_length, long=long)
    for batch in batches(encoder, examples, batch_size=batch_size):
        indices = batch.indices

        def observe(attention: Attention, indices: tuple[int, ...] = indices) -> None:
            attention.examples = indices[attention.rows]
            look(attention)

        with model.watched(observe), torch.inference_mode():
            model(batch)
