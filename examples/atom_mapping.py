"""Which heads of rxnmapper know where each atom of a product comes from?

For every product atom, the reactant atom that a head's largest weight falls on (among reactant atoms) is compared with
the reference map. The best heads are chosen on the validation reactions and reported on the test reactions, each
reaction counting once, with a 95 % interval.

    python examples/atom_mapping.py uspto50k_mapped.tsv.gz --limit 1000
"""

from __future__ import annotations

import argparse
import csv
import gzip
import re
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch

import headscope

TOKEN = re.compile(r"\[[^\]]+]|Br?|Cl?|[NOSPFIbcnosp]|>>?|%[0-9]{2}|[().=#\-+\\/:~@?*$0-9]")
ATOM = re.compile(r"\[[^\]]+]|Br?|Cl?|[NOSPFIbcnosp]")
MAPPED = re.compile(r"\[(?P<atom>[^\]:]+):(?P<number>\d+)]")
ORDINARY = re.compile(r"(?P<symbol>Br|Cl|[BCNOPSFIbcnops])(H\d?)?")


@dataclass(frozen=True)
class Reaction:
    """A reaction without its map, and where its atoms are among the tokens ([CLS] is token 0)."""

    smiles: str
    product: torch.Tensor  # tokens that are product atoms
    reactants: torch.Tensor  # tokens that are reactant atoms
    answer: (
        torch.Tensor
    )  # for each product atom, the reactant atom it comes from, as a place in `reactants`


def read_reaction(mapped: str) -> Reaction:
    """Take the map off `[CH3:1]` and the like, in the order of the atoms."""
    plain, numbers = [], []
    for token in TOKEN.findall(mapped):
        match = MAPPED.fullmatch(token)
        plain.append(token if match is None else without_map(match["atom"]))
        numbers.append(None if match is None else int(match["number"]))
    arrow = plain.index(">>")
    reactants = [i for i, token in enumerate(plain) if i < arrow and ATOM.fullmatch(token)]
    product = [i for i, token in enumerate(plain) if i > arrow and ATOM.fullmatch(token)]
    place = {
        numbers[token]: place for place, token in enumerate(reactants) if numbers[token] is not None
    }
    answer = torch.tensor([place[numbers[token]] for token in product])
    return Reaction("".join(plain), torch.tensor(product) + 1, torch.tensor(reactants) + 1, answer)


def without_map(atom: str) -> str:
    """`CH3` as the model knows it: C. Charges, isotopes, stereo marks and [nH] keep their brackets."""
    match = ORDINARY.fullmatch(atom)
    return f"[{atom}]" if match is None or atom == "nH" else match["symbol"]


def accuracies(model: headscope.AttentionModel, reactions: list[Reaction]) -> torch.Tensor:
    """[reaction, layer, head]: the share of a reaction's product atoms that the head maps right."""
    layers, heads = len(model.sites), len(model.heads) // len(model.sites)
    right = torch.full((len(reactions), layers, heads), float("nan"))
    for batch in headscope.encode(model, [reaction.smiles for reaction in reactions]):

        def observe(attention: headscope.Attention, batch: headscope.Batch = batch) -> None:
            for weights, index in zip(
                attention.weights, batch.indices[attention.rows], strict=True
            ):
                reaction = reactions[index]
                to_reactants = weights[:, reaction.product][:, :, reaction.reactants]
                right[index, attention.site.layer] = (
                    (to_reactants.argmax(-1) == reaction.answer).float().mean(-1)
                )

        with model.watched(observe), torch.inference_mode():
            model(batch)
    return right


def read_file(path: Path, limit: int, longest: int = 510) -> dict[str, list[Reaction]]:
    """The first reactions of each split that fit into the model."""
    found: dict[str, list[Reaction]] = {"valid": [], "test": []}
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            mapped = row["reaction_smiles"]
            if len(found[row["split"]]) < limit and len(TOKEN.findall(mapped)) <= longest:
                found[row["split"]].append(read_reaction(mapped))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "file", type=Path, help="tab-separated: split, …, reaction_smiles with atom maps"
    )
    parser.add_argument("--limit", type=int, default=1000, help="reactions of each split [1000]")
    arguments = parser.parse_args()
    model = headscope.load("rxnmapper")
    reactions = read_file(arguments.file, arguments.limit)
    chosen, reported = (accuracies(model, reactions[split]) for split in ("valid", "test"))
    error = 1.96 * reported.std(dim=0) / len(reported) ** 0.5
    rows = [
        {
            "head": f"{head.layer}.{head.head}",
            "valid": float(chosen.mean(dim=0)[head.layer, head.head]),
            "test": float(reported.mean(dim=0)[head.layer, head.head]),
            "±": float(error[head.layer, head.head]),
        }
        for head in model.heads
    ]
    table = pd.DataFrame(rows).sort_values("valid", ascending=False)
    print(
        f"{len(chosen)} validation and {len(reported)} test reactions; share of product atoms mapped right"
    )
    print(table.head(16).to_string(index=False, float_format=lambda value: f"{value:.3f}"))


if __name__ == "__main__":
    main()
