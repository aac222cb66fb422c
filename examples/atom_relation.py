"""Atom mapping as a custom relation: which head of rxnmapper connects a product atom with its reactant atom?

The same question as in atom_mapping.py, here with `headscope.analyze`. A reaction is a sentence whose words are its
tokens; the relation is a list of pairs of words. The best head is selected on one half of the reactions and reported on
the other half. Heads with a clear result have a role with the name of the relation.

    python examples/atom_relation.py uspto50k_mapped.tsv.gz --limit 500 --out atoms
"""

from __future__ import annotations

import argparse
from pathlib import Path

from atom_mapping import TOKEN, Reaction, read_file

import headscope

NAME = "product atom to reactant atom"


def sentence_of(reaction: Reaction) -> headscope.Sentence:
    """The tokens as words, and a pair for each product atom (query) with the reactant atom it comes from (key)."""
    sources = reaction.reactants[reaction.answer]
    pairs = [
        (int(atom) - 1, int(source) - 1)
        for atom, source in zip(reaction.product, sources, strict=True)
    ]
    return headscope.Sentence(tuple(TOKEN.findall(reaction.smiles)), {NAME: pairs})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "file", type=Path, help="tab-separated: split, …, reaction_smiles with atom maps"
    )
    parser.add_argument("--limit", type=int, default=500, help="reactions of each split [500]")
    parser.add_argument("--out", type=Path, help="write the study here")
    arguments = parser.parse_args()
    reactions = [
        reaction
        for of_split in read_file(arguments.file, arguments.limit).values()
        for reaction in of_split
    ]
    study = headscope.analyze(
        "rxnmapper", sentences=[sentence_of(reaction) for reaction in reactions]
    )
    columns = [
        "direction",
        "layer",
        "head",
        "accuracy",
        "low",
        "high",
        "same_data_best_accuracy",
        "count",
    ]
    print(study.tables["relations"][columns].to_string(index=False, float_format="%.3f"))
    roles = study.tables["roles"]
    print(
        roles[roles["role"] == NAME][["layer", "head", "role", "value", "low", "high"]].to_string(
            index=False
        )
    )
    if arguments.out is not None:
        print(headscope.write(study, arguments.out))


if __name__ == "__main__":
    main()
