"""Compare the heads of two or more models.

Studies are enough to compare layers, smoothness across layers and roles, and to match heads by behaviour. With the
models and texts, the change of each head's maps on the same inputs is measured, too (e.g. the change by fine-tuning).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations, product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headscope.analysis.head_matching import WITHIN, Behaviour, Matching, Within, behaviours, match
from headscope.analysis.smoothness import FORMS, smoothness_of
from headscope.analysis.training_changes import changes_between
from headscope.config.compare import CompareConfig
from headscope.config.option import record_options
from headscope.config.shared import Run
from headscope.config.texts import TextData
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.load import ModelSource, as_model
from headscope.model.weights import weights_sha256
from headscope.statistics import glossary
from headscope.study.inputs import Corpus
from headscope.study.lengths import length_note
from headscope.study.local_paths import local_name
from headscope.study.result import Result
from headscope.study.run_record import versions
from headscope.study.schema.names import StatisticName
from headscope.study.schema.record import SCHEMA, RunRecord, Section
from headscope.study.schema.tables import COMPARISON_TABLES
from headscope.study.study import Study
from headscope.tables import STACKS, TableRow

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

NamedStudies = Sequence[tuple[str, Study]]
NEEDS_MODELS = (
    "How the maps of each head changed on the same inputs is not in a study: it needs the models and texts "
    "(`models=[A, B]` `corpus=FILE`)."
)


@dataclass
class Comparison(Result):
    """The tables of a comparison.

    names          names of the studies in the tables
    layers         mean, smallest and largest value of the heads of a layer, by study, stack, layer and statistic
    smoothness     correlation of neighbouring layers, by study, stack, statistic and form (`analysis/smoothness`)
    roles          number of heads of each layer with each role; empty if no study has roles
    matches        pairs of heads matched by behaviour (`analysis/head_matching`)
    matching       a row for each assignment: two studies, a stack, and which heads may be paired
    changes        change of each head's maps on the same inputs; empty if no models were passed
    layer_changes  the same, averaged over the heads of each layer
    notes          notes on differences of the studies that affect the comparison
    """

    names: list[str]
    studies: list[Study]
    layers: pd.DataFrame
    smoothness: pd.DataFrame
    roles: pd.DataFrame
    matches: pd.DataFrame
    matching: pd.DataFrame
    changes: pd.DataFrame
    layer_changes: pd.DataFrame
    notes: list[str] = field(default_factory=list)
    record: RunRecord = field(default_factory=RunRecord)

    def __repr__(self) -> str:
        return f"Comparison({', '.join(map(repr, self.names))})"

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The tables that have rows, by the name of their csv."""
        return {name: table for name in COMPARISON_TABLES if len(table := getattr(self, name))}


def compare(
    studies: Sequence[Study | str | Path], config: CompareConfig, data: TextData, run: Run
) -> Comparison:
    """Compare the heads of two or more studies, which must have a lens and a statistic in common."""
    read = _read_studies(studies)
    shared = _shared_statistics(read)
    corpus = _corpus(config, data, len(read))
    named = list(zip(_names(read, studies), read, strict=True))
    names = ("changes", "layer_changes")
    changes, layer_changes = (COMPARISON_TABLES[name].frame([]) for name in names)
    counts = None
    if corpus is not None:
        before, after = map(_load, config.models, read)
        changes, layer_changes, counts = changes_between(
            before,
            after,
            corpus,
            max_length=data.max_length,
            batch_size=config.batch_size,
            progress=run.progress,
        )
    matches, matching = _matches(named, list(shared), run.seed)
    notes = [*_notes(named), *([] if corpus is not None else [NEEDS_MODELS])]
    record: RunRecord = {
        "schema": SCHEMA,
        "kind": "comparison",
        "command": run.typed,
        "versions": versions(),
        "studies": [
            {
                "name": name,
                "lens": study.record.get("lens"),
                "model": study.record.get("model", {}),
                "data": _data(study),
            }
            for name, study in named
        ],
        "data": None if corpus is None or counts is None else corpus.describe() | counts,
        "config": record_options(config, data, run),
        "seed": run.seed,
        "notes": notes,
    }
    return Comparison(
        names=[name for name, _ in named],
        studies=read,
        layers=COMPARISON_TABLES["layers"].frame(_layers(named, shared)),
        smoothness=COMPARISON_TABLES["smoothness"].frame(_smoothness(named, shared, run.seed)),
        roles=COMPARISON_TABLES["roles"].frame(_roles(named)),
        matches=matches,
        matching=matching,
        changes=changes,
        layer_changes=layer_changes,
        notes=notes,
        record=record,
    )


def _read_studies(studies: Sequence[Study | str | Path]) -> list[Study]:
    """Read the studies; an error if they have no lens in common."""
    if isinstance(studies, str | Path) or len(studies) < 2:
        raise HeadscopeError(
            "one study cannot be compared" if studies else "no study was given",
            where="STUDY",
            expected="two studies or more",
            fix="Make another one with headscope analyze",
        )
    read = [study if isinstance(study, Study) else Study(study) for study in studies]
    lenses = [str(study.record.get("lens", "raw")) for study in read]
    if not set.intersection(*({*lens.split(",")} for lens in lenses)):
        names = [
            _model_name(study) if isinstance(source, Study) else source
            for source, study in zip(studies, read, strict=True)
        ]
        listed = ", ".join(f"{name}: {lens}" for name, lens in zip(names, lenses, strict=True))
        what = f"the studies look through different lenses ({listed})"
        raise HeadscopeError(what, expected="one lens")
    return read


def _model_name(study: Study) -> str:
    return str(study.record.get("model", {}).get("name") or "model")


def _shared_statistics(studies: list[Study]) -> dict[str, list[str]]:
    """By stack, the statistics that all studies have values of.

    Statistics whose unit is an offset (argmax-offset) are left out. They are modes, and their mean over heads has no
    meaning.
    """
    definitions = glossary()
    shared = {}
    for stack in STACKS:
        rows = [
            study.heads[(study.heads["stack"] == stack) & study.heads["value"].notna()]
            for study in studies
        ]
        common = set.intersection(*(set(table["statistic"]) for table in rows))
        names = [str(name) for name in dict.fromkeys(rows[0]["statistic"]) if name in common]
        bases = {name: definitions.get(StatisticName.parse(name).base) for name in names}
        names = [name for name, base in bases.items() if base is None or base.unit != "offset"]
        if names:
            shared[stack] = names
    if not shared:
        raise HeadscopeError(
            "the studies have no statistic of a stack in common",
            where="STUDY",
            expected="studies made with the same `statistics`, of models with a stack in common",
        )
    return shared


def _corpus(config: CompareConfig, data: TextData, studies: int) -> Corpus | None:
    """The texts to run the models on, checked before a model is loaded; None without models."""
    models = config.models
    if not models:
        return None
    if len(models) != 2 or studies != 2:
        raise HeadscopeError(
            f"{len(models)} models for {studies} studies",
            where="`models`",
            expected="two models for two studies, in the same order",
        )
    return Corpus(data.corpus, data.texts, data.pairs, data.column, data.limit)


def _load(model: ModelSource, study: Study) -> AttentionModel:
    """Load the model; an error if its weights are not those of the study."""
    model = as_model(model)
    record = study.record.get("model", {})
    if record.get("sha256") not in (None, weights_sha256(model)):
        raise HeadscopeError(
            f"these are not the weights that the study of {record.get('name')} was made with",
            where=f"`models` {model.name}",
            expected="the models in the order of the studies",
        )
    return model


def _names(studies: list[Study], sources: Sequence[Study | str | Path]) -> list[str]:
    """Names of the models; if two are equal, the name of the directory or a number is added."""
    names = [local_name(_model_name(study)) for study in studies]
    numbers = [str(i) for i in range(1, len(names) + 1)]
    pairs = zip(sources, numbers, strict=True)
    ends = [number if isinstance(source, Study) else Path(source).name for source, number in pairs]
    if len(set(ends)) < len(ends):
        ends = numbers
    return [
        f"{name} ({end})" if names.count(name) > 1 else name
        for name, end in zip(names, ends, strict=True)
    ]


def grid_of(study: Study, stack: str, statistic: str) -> NDArray[np.float64]:
    """[layer, head]: the values of a statistic, for layers and heads with rows; NaN for a head without a value."""
    rows = study.heads[(study.heads["stack"] == stack) & (study.heads["statistic"] == statistic)]
    return rows.pivot(index="layer", columns="head", values="value").to_numpy(dtype=float)


def _layers(named: NamedStudies, shared: dict[str, list[str]]) -> Iterator[TableRow]:
    """Rows of layers.csv.

    The interval of a layer's mean is the mean of its heads' intervals. It is not narrower, since the same texts were
    used for all heads, so that their errors are correlated.
    """
    for name, study in named:
        for stack, statistics in shared.items():
            is_shared = study.heads["statistic"].isin(statistics)
            rows = study.heads[(study.heads["stack"] == stack) & is_shared]
            last = max(int(rows["layer"].max()), 1)
            for statistic in statistics:
                for layer, heads in rows[rows["statistic"] == statistic].groupby("layer"):
                    ends = heads[["low", "high"]].mean(skipna=False)
                    yield {
                        "study": name,
                        "stack": stack,
                        "layer": layer,
                        "depth": float(layer) / last,  # type: ignore[arg-type]
                        "statistic": statistic,
                        "mean": heads["value"].mean(),
                        "low": ends["low"],
                        "high": ends["high"],
                        "least": heads["value"].min(),
                        "most": heads["value"].max(),
                        "heads": len(heads),
                    }


def _smoothness(named: NamedStudies, shared: dict[str, list[str]], seed: int) -> Iterator[TableRow]:
    for name, study in named:
        for stack, statistics in shared.items():
            for statistic in statistics:
                grid = grid_of(study, stack, statistic)
                for form in FORMS:
                    smoothness = smoothness_of(grid, form, seed)
                    if smoothness is not None:
                        key = {"study": name, "stack": stack, "statistic": statistic, "form": form}
                        yield key | asdict(smoothness)


def _roles(named: NamedStudies) -> Iterator[TableRow]:
    """Rows of roles.csv: number of heads of each layer with each role; a head may have several."""
    for name, study in named:
        roles = study.tables.get("roles")
        if roles is None or not {"stack", "layer", "head", "role"} <= set(roles):
            continue
        heads = study.heads.drop_duplicates(["stack", "layer", "head"])
        sizes = heads.groupby(["stack", "layer"]).size()
        for (stack, layer, role), of_role in roles.groupby(["stack", "layer", "role"]):
            count, size = of_role["head"].nunique(), int(sizes.loc[(stack, layer)])  # type: ignore[index]
            key = {"study": name, "stack": stack, "layer": layer, "role": role}
            yield key | {"heads": count, "of": size, "share": count / size}


def _matches(
    named: NamedStudies, stacks: list[str], seed: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of matches.csv (pairs of heads) and of matching.csv (assignments) for every two studies."""
    rows, summary = [], []
    for ((name, study), (other_name, other)), stack in product(combinations(named, 2), stacks):
        left, right, statistics = behaviours(
            *(s.heads[s.heads["stack"] == stack] for s in (study, other))
        )
        for within in WITHIN if statistics else ():
            matching = match(left, right, within, seed)
            key = {"study": name, "other": other_name, "stack": stack, "within": within}
            # for each matched pair, the number of pairs of shuffled heads that are at least as near
            nearer = matching.chance.searchsorted(matching.distances + 1e-12, side="right")
            for i, (a, b) in enumerate(matching.pairs):
                (layer, head), (other_layer, other_head) = left.places[a], right.places[b]
                pair = {"layer": layer, "head": head}
                pair |= {"other_layer": other_layer, "other_head": other_head}
                numbers = {"distance": matching.distances[i], "noise": matching.noise[i]}
                numbers["chance"] = nearer[i] / len(matching.chance)
                rows.append(key | pair | numbers)
            null_low, null_high = np.quantile(matching.null, [0.025, 0.975])
            summary.append(
                key
                | {
                    "matched": len(matching.pairs),
                    "unmatched": len(left.places) + len(right.places) - 2 * len(matching.pairs),
                    "distance": matching.distances.mean(),
                    "noise": matching.noise.mean(),
                    "null": matching.null.mean(),
                    "null_low": null_low,
                    "null_high": null_high,
                    "probability": matching.probability,
                    "depth_correlation": _depth_correlation(left, right, matching, within),
                    "statistics": len(statistics),
                }
            )
    return COMPARISON_TABLES["matches"].frame(rows), COMPARISON_TABLES["matching"].frame(summary)


def _depth_correlation(
    left: Behaviour, right: Behaviour, matching: Matching, within: Within
) -> float:
    """Rank correlation of the depths of matched heads; NaN if only heads of the same depth were paired."""
    from scipy.stats import spearmanr

    depths = left.depth[matching.pairs[:, 0]], right.depth[matching.pairs[:, 1]]
    is_varied = len(matching.pairs) > 2 and all(np.ptp(depth) > 0 for depth in depths)
    if within != "stack" or not is_varied:
        return np.nan
    return float(spearmanr(*depths).statistic)


def _data(study: Study) -> Section:
    data = study.record.get("data") or {}
    keys = ("files", "used", "tokens", "sequences", "max_length")
    return {key: data[key] for key in keys if key in data}


def _notes(named: NamedStudies) -> list[str]:
    """Notes on differences of the studies that are not differences of the models."""
    notes, studies = [], [study for _, study in named]
    read = [[file.get("sha256") for file in _data(study).get("files", [])] for study in studies]
    used = [_data(study).get("used") for study in studies]
    if any(files != read[0] for files in read) or len(set(used)) > 1:
        notes.append(
            "The studies were made on different texts, which may cause part of any difference."
        )
    if note := length_note([(name, study.record) for name, study in named], ratio=1.02):
        notes.append(note)
    without = [name for name, study in named if "roles" not in study.tables]
    if without:
        notes.append(f"No roles in the study of {', '.join(without)}.")
    limits = [study.record.get("options", {}).get("thresholds") for study in studies]
    if any(thresholds != limits[0] for thresholds in limits):
        notes.append("The roles of these studies have different thresholds.")
    return notes
