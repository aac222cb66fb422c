"""Which heads of a translation model's decoder know the syntax of the language it writes?

French trees, opus-mt-en-fr: its decoder reads the French words of the treebank while it is taught them. It needs a
source, and the treebank has none, so opus-mt-fr-en makes one (greedily, from the written text). A decoder sees only
what is to the left: of two related words only the later one can look at the other. Each relation is therefore asked in
two parts, by which of the two comes first, and in each only one direction can be right at all.

    python examples/decoder_relations.py fr_gsd-ud-dev.conllu.gz --limit 500

With --mismatched every sentence gets the source of another one: what the heads know without a translation to lean on.
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
AFTER, BEFORE = "governor before", "governor after"  # where the governor stands
LOOKS = {AFTER: "dependent", BEFORE: "governor"}
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
    """The sentences as they are written, with their contractions (du, not de le)."""
    return (line.removeprefix(TEXT) for _, line in read_lines(path) if line.startswith(TEXT))


def translated(texts: list[str], model: str, batch_size: int = 16) -> list[str]:
    """A greedy translation of each text."""
    translator = headscope.load(model)
    found: list[str] = []
    for start in range(0, len(texts), batch_size):
        batch = translator.tokenizer(
            texts[start : start + batch_size], return_tensors="pt", padding=True
        )
        with torch.inference_mode():
            made = translator.model.generate(**batch, num_beams=1, max_length=256)
        found += translator.tokenizer.batch_decode(made, skip_special_tokens=True)
    return found


def sentence_of(parsed: ParsedSentence, source: str) -> headscope.Sentence:
    """The tree as the target of its translation; the two parts of each relation are apart."""
    pairs: dict[str, list[tuple[int, int]]] = {}
    for word, (governor, relation) in enumerate(
        zip(parsed.governors, parsed.relations, strict=True)
    ):
        if governor != ROOT:
            part = AFTER if governor < word else BEFORE
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
        "--mismatched", action="store_true", help="give each sentence the source of another"
    )
    parser.add_argument("--out", type=Path, help="write the study here")
    arguments = parser.parse_args()
    trees = list(islice(read_treebank(arguments.file), arguments.limit))
    sources = translated(
        list(islice(read_written(arguments.file), arguments.limit)), "opus-mt-fr-en"
    )
    if arguments.mismatched:
        sources = [*sources[1:], sources[0]]
    sentences = [sentence_of(tree, source) for tree, source in zip(trees, sources, strict=True)]
    study = headscope.analyze("opus-mt-en-fr", sentences=sentences, control=True)
    table = study.tables["relations"]
    table = table[table["direction"] == table["relation"].str.split(", ").str[1].map(LOOKS)]
    print(table[COLUMNS].dropna(subset="layer").to_string(index=False, float_format="%.3f"))
    print("\nThe share of all pairs that a decoder can see, by who looks:")
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
