"""Atom mapping as a relation of one's own: which head of rxnmapper joins a product atom to its reactant atom?

The same question as in atom_mapping.py, asked through `headscope.analyze`: a reaction is a sentence whose words are
its tokens, and a relation is a list of pairs of words. The best head is chosen on one half of the reactions and
reported on the other, and a head's role is called by the relation's name.

    python examples/atom_relation.py uspto50k_mapped.tsv.gz --limit 500 --out atoms
"""

from __future__ import annotations

import argparse
from pathlib import Path

from atom_mapping import TOKEN, Reaction, read_file

import headscope

NAME = "product atom to reactant atom"


def sentence_of(reaction: Reaction) -> headscope.Sentence:
    """The tokens, and for each product atom (query) the reactant atom it comes from (key)."""
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
        one for split in read_file(arguments.file, arguments.limit).values() for one in split
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
