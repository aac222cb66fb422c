"""Which heads of a translation model's decoder follow the syntax of the target language?

The decoder of opus-mt-en-fr reads the French sentences of a treebank as targets. It also needs English sources, which
the treebank does not have, so opus-mt-fr-en translates the French text (greedily). A decoder attends to earlier tokens
only: of two related words, only the later word can attend to the other. Each relation is therefore divided in two, by
whether the governor or the dependent comes first. In each part only one direction is possible.

    python examples/decoder_relations.py fr_gsd-ud-dev.conllu.gz --limit 500

With --mismatched every sentence gets the source of another sentence, to measure the heads without a matching source.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch

import headscope
from headscope.data.text_lines import read_lines
from headscope.data.treebank import ROOT, ParsedSentence, read_treebank

TEXT = "# text = "
GOVERNOR_FIRST, DEPENDENT_FIRST = "governor before", "governor after"  # parts of a relation
QUERIES = {GOVERNOR_FIRST: "dependent", DEPENDENT_FIRST: "governor"}  # the word that can attend
COLUMNS = [
    "relation",
    "direction",
    "layer",
    "head",
    "accuracy",
    "low",
    "high",
    "baseline",
    "control",
    "count",
]


def read_written(path: Path) -> Iterator[str]:
    """The sentences as written text, with contractions (du, not de le)."""
    return (line.removeprefix(TEXT) for _, line in read_lines(path) if line.startswith(TEXT))


def translate(texts: list[str], model: str, batch_size: int = 16) -> list[str]:
    """A greedy translation of each text."""
    translator = headscope.load(model)
    translations: list[str] = []
    for start in range(0, len(texts), batch_size):
        batch = translator.tokenizer(
            texts[start : start + batch_size], return_tensors="pt", padding=True
        )
        with torch.inference_mode():
            ids = translator.model.generate(**batch, num_beams=1, max_length=256)
        translations += translator.tokenizer.batch_decode(ids, skip_special_tokens=True)
    return translations


def sentence_of(parsed: ParsedSentence, source: str) -> headscope.Sentence:
    """The source and the parsed target, with pairs for the two parts of each relation."""
    pairs: dict[str, list[tuple[int, int]]] = {}
    for word, (governor, relation) in enumerate(
        zip(parsed.governors, parsed.relations, strict=True)
    ):
        if governor != ROOT:
            part = GOVERNOR_FIRST if governor < word else DEPENDENT_FIRST
            pairs.setdefault(f"{relation}, {part}", []).append((word, governor))
    return headscope.Sentence(tuple(source.split()), pairs, parsed.words, "target", parsed.where)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "file", type=Path, help="trees in CoNLL-U, with the written sentence in # text"
    )
    parser.add_argument("--limit", type=int, default=500, help="sentences [500]")
    parser.add_argument(
        "--mismatched",
        action="store_true",
        help="give each sentence the source of another sentence",
    )
    parser.add_argument("--out", type=Path, help="write the study here")
    arguments = parser.parse_args()
    trees = list(islice(read_treebank(arguments.file), arguments.limit))
    sources = translate(
        list(islice(read_written(arguments.file), arguments.limit)), "opus-mt-fr-en"
    )
    if arguments.mismatched:
        sources = [*sources[1:], sources[0]]
    sentences = [sentence_of(tree, source) for tree, source in zip(trees, sources, strict=True)]
    study = headscope.analyze("opus-mt-en-fr", sentences=sentences, control=True)
    table = study.tables["relations"]
    table = table[table["direction"] == table["relation"].str.split(", ").str[1].map(QUERIES)]
    print(table[COLUMNS].dropna(subset="layer").to_string(index=False, float_format="%.3f"))
    print("\nShare of the pairs of each relation, by the word that can attend to the other:")
    names = table["relation"].str.split(", ").str[0]
    pairs = (
        table.assign(relation=names)
        .pivot(index="relation", columns="direction", values="count")
        .fillna(0)
    )
    print(
        pairs.div(pairs.sum(axis=1), axis=0)[pairs.sum(axis=1) >= 100].to_string(
            float_format="%.3f"
        )
    )
    if arguments.out is not None:
        print(headscope.write(study, arguments.out))


if __name__ == "__main__":
    main()
