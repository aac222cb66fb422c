"""Which heads of rxnmapper know where each atom of a product comes from?

For every product atom, a head predicts the reactant atom with its largest weight. The prediction is compared with the
reference map. The best heads are selected on the validation reactions and reported on the test reactions, with a 95 %
interval. Every reaction has the same weight.

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
    """A reaction without its atom map, and the positions of its atoms among the tokens ([CLS] is token 0)."""

    smiles: str
    product: torch.Tensor  # [product atom]: its token
    reactants: torch.Tensor  # [reactant atom]: its token
    answer: torch.Tensor  # [product atom]: index in `reactants` of the atom that it comes from


def read_reaction(mapped: str) -> Reaction:
    """A reaction from SMILES with atom maps such as `[CH3:1]`, which are removed from the text."""
    plain, numbers = [], []
    for token in TOKEN.findall(mapped):
        match = MAPPED.fullmatch(token)
        plain.append(token if match is None else without_map(match["atom"]))
        numbers.append(None if match is None else int(match["number"]))
    arrow = plain.index(">>")
    reactants = [i for i, token in enumerate(plain) if i < arrow and ATOM.fullmatch(token)]
    product = [i for i, token in enumerate(plain) if i > arrow and ATOM.fullmatch(token)]
    index_of = {
        numbers[token]: index for index, token in enumerate(reactants) if numbers[token] is not None
    }
    answer = torch.tensor([index_of[numbers[token]] for token in product])
    return Reaction("".join(plain), torch.tensor(product) + 1, torch.tensor(reactants) + 1, answer)


def without_map(atom: str) -> str:
    """An atom as in the model's vocabulary: C for `CH3`. Charges, isotopes, stereo marks and [nH] keep brackets."""
    match = ORDINARY.fullmatch(atom)
    return f"[{atom}]" if match is None or atom == "nH" else match["symbol"]


def accuracies(model: headscope.AttentionModel, reactions: list[Reaction]) -> torch.Tensor:
    """[reaction, layer, head]: the share of the reaction's product atoms that the head maps correctly."""
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
    """The first `limit` reactions of each split with at most `longest` tokens."""
    by_split: dict[str, list[Reaction]] = {"valid": [], "test": []}
    open_text = gzip.open if path.suffix == ".gz" else open
    with open_text(path, "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            mapped = row["reaction_smiles"]
            if len(by_split[row["split"]]) < limit and len(TOKEN.findall(mapped)) <= longest:
                by_split[row["split"]].append(read_reaction(mapped))
    return by_split


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
    valid, test = (accuracies(model, reactions[split]) for split in ("valid", "test"))
    error = 1.96 * test.std(dim=0) / len(test) ** 0.5
    rows = [
        {
            "head": f"{head.layer}.{head.head}",
            "valid": float(valid.mean(dim=0)[head.layer, head.head]),
            "test": float(test.mean(dim=0)[head.layer, head.head]),
            "±": float(error[head.layer, head.head]),
        }
        for head in model.heads
    ]
    table = pd.DataFrame(rows).sort_values("valid", ascending=False)
    print(
        f"{len(valid)} validation and {len(test)} test reactions; share of product atoms mapped correctly"
    )
    print(table.head(16).to_string(index=False, float_format=lambda value: f"{value:.3f}"))


if __name__ == "__main__":
    main()
