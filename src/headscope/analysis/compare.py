"""compare, the verb: what do the heads of two or more models have in common, and where do they differ?

From studies alone: layer by layer side by side, smoothness across layers, roles, heads matched by behaviour. What the
same text does in both (the change of each head's maps by fine-tuning) needs the models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headscope.analysis.head_matching import WITHIN, behaviours, match
from headscope.analysis.smoothness import FORMS, smoothness_of
from headscope.analysis.training_changes import changes_between
from headscope.config.compare import CompareConfig
from headscope.config.option import record_options
from headscope.config.shared import Run
from headscope.config.texts import TextData
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.load import as_model
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

Named = Sequence[tuple[str, Study]]  # the studies by name
NEEDS_MODELS = (
    "How the maps of each head changed on the same inputs is not in a study: it needs the models and texts "
    "(`models=[A, B]` `corpus=FILE`)."
)


@dataclass
class Comparison(Result):
    """What was found, as tables; `names` are those of the studies in them.

    layers      of each study, stack, layer and statistic: the mean over the layer's heads, with least and most
    smoothness  correlation of neighbouring layers for each study, stack, statistic and form
    roles       how many heads of each layer have each role; empty where no study has roles
    matches     which head of one is which of the other, by behaviour; matching: a row for each assignment
    changes     of each head, on the same inputs; layer_changes: of each layer. Empty without the models
    notes       what to know when reading it
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
        """By the name of their csv, those that have rows."""
        return {name: table for name in COMPARISON_TABLES if len(table := getattr(self, name))}


def compare(
    studies: Sequence[Study | str | Path], config: CompareConfig, data: TextData, run: Run
) -> Comparison:
    """The heads of two or more studies of one lens side by side; they must have a statistic in common."""
    given = _checked(studies)
    shared = _shared(given)
    plain = _corpus(config, data, len(given))
    names = _names(given, studies)
    named = list(zip(names, given, strict=True))
    changes, layer_changes = (
        COMPARISON_TABLES[name].frame([]) for name in ("changes", "layer_changes")
    )
    read = None
    if plain is not None:
        before, after = (
            _loaded(model, study) for model, study in zip(config.models, given, strict=True)
        )
        changes, layer_changes, read = changes_between(
            before,
            after,
            plain,
            max_length=data.max_length,
            batch_size=config.batch_size,
            progress=run.progress,
        )
    matches, matching = _matches(named, list(shared), run.seed)
    notes = [*_notes(named), *([] if plain is not None else [NEEDS_MODELS])]
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
        "data": None if plain is None or read is None else plain.describe() | read,
        "config": record_options(config, data, run),
        "seed": run.seed,
        "notes": notes,
    }
    return Comparison(
        names,
        given,
        COMPARISON_TABLES["layers"].frame(_layers(named, shared)),
        COMPARISON_TABLES["smoothness"].frame(_smoothness(named, shared, run.seed)),
        COMPARISON_TABLES["roles"].frame(_roles(named)),
        matches,
        matching,
        changes,
        layer_changes,
        notes,
        record,
    )


def _checked(studies: Sequence[Study | str | Path]) -> list[Study]:
    if isinstance(studies, str | Path) or len(studies) < 2:
        raise HeadscopeError(
            "one study cannot be compared" if studies else "no study was given",
            where="STUDY",
            expected="two studies or more",
            fix="Make another one with headscope analyze",
        )
    given = [one if isinstance(one, Study) else Study(one) for one in studies]
    lenses = [str(study.record.get("lens", "raw")) for study in given]
    if not set.intersection(*({*lens.split(",")} for lens in lenses)):
        models = [study.record.get("model", {}).get("name", "model") for study in given]
        named = [
            f"{model if isinstance(one, Study) else one}: {lens}"
            for one, model, lens in zip(studies, models, lenses, strict=True)
        ]
        raise HeadscopeError(
            f"the studies look through different lenses ({', '.join(named)})", expected="one lens"
        )
    return given


def _shared(studies: list[Study]) -> dict[str, list[str]]:
    """The statistics that all studies have values of, by stack; the offset of the maxima, a mode, is not averaged."""
    known = glossary()
    found = {}
    for stack in STACKS:
        rows = [
            study.heads[(study.heads["stack"] == stack) & study.heads["value"].notna()]
            for study in studies
        ]
        common = set.intersection(*(set(one["statistic"]) for one in rows))
        names = [str(name) for name in dict.fromkeys(rows[0]["statistic"]) if name in common]
        bases = {name: known.get(StatisticName.parse(name).base) for name in names}
        names = [name for name, base in bases.items() if base is None or base.unit != "offset"]
        if names:
            found[stack] = names
    if not found:
        raise HeadscopeError(
            "the studies have no statistic of a stack in common",
            where="STUDY",
            expected="studies made with the same `statistics`, of models with a stack in common",
        )
    return found


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


def _loaded(model: AttentionModel | str | Path, study: Study) -> AttentionModel:
    """The model, which must be the one that the study is of."""
    one = as_model(model)
    recorded = study.record.get("model", {})
    if recorded.get("sha256") not in (None, weights_sha256(one)):
        raise HeadscopeError(
            f"these are not the weights that the study of {recorded.get('name')} was made with",
            where=f"`models` {one.name}",
            expected="the models in the order of the studies",
        )
    return one


def _names(studies: list[Study], given: Sequence[Study | str | Path]) -> list[str]:
    """The models' names; where two are the same, with the directory or a number behind."""
    names = [
        local_name(str(study.record.get("model", {}).get("name") or "model")) for study in studies
    ]
    if len(set(names)) < len(names):
        ends = [
            Path(one).name if not isinstance(one, Study) else str(i + 1)
            for i, one in enumerate(given)
        ]
        if len(set(ends)) < len(ends):
            ends = [str(i + 1) for i in range(len(given))]
        names = [
            f"{name} ({end})" if names.count(name) > 1 else name
            for name, end in zip(names, ends, strict=True)
        ]
    return names


def grid_of(study: Study, stack: str, statistic: str) -> NDArray[np.float64]:
    """[layer, head] of the layers and heads there are; NaN where one has no value."""
    rows = study.heads[(study.heads["stack"] == stack) & (study.heads["statistic"] == statistic)]
    return rows.pivot(index="layer", columns="head", values="value").to_numpy(dtype=float)


def _layers(named: Named, shared: dict[str, list[str]]) -> Iterator[TableRow]:
    """The interval is the mean of the heads' own: texts move heads of a layer together, so it is wide enough."""
    for name, study in named:
        for stack, statistics in shared.items():
            rows = study.heads[
                (study.heads["stack"] == stack) & study.heads["statistic"].isin(statistics)
            ]
            last = max(int(rows["layer"].max()), 1)
            for statistic in statistics:
                for layer, some in rows[rows["statistic"] == statistic].groupby("layer"):
                    ends = some[["low", "high"]].mean(skipna=False)
                    yield {
                        "study": name,
                        "stack": stack,
                        "layer": layer,
                        "depth": float(layer) / last,  # type: ignore[arg-type]
                        "statistic": statistic,
                        "mean": some["value"].mean(),
                        "low": ends["low"],
                        "high": ends["high"],
                        "least": some["value"].min(),
                        "most": some["value"].max(),
                        "heads": len(some),
                    }


def _smoothness(named: Named, shared: dict[str, list[str]], seed: int) -> Iterator[TableRow]:
    for name, study in named:
        for stack, statistics in shared.items():
            for statistic in statistics:
                grid = grid_of(study, stack, statistic)
                for form in FORMS:
                    found = smoothness_of(grid, form, seed)
                    if found is not None:
                        key = {"study": name, "stack": stack, "statistic": statistic, "form": form}
                        yield key | asdict(found)


def _roles(named: Named) -> Iterator[TableRow]:
    """How many heads of each layer have each role; a head may have several."""
    for name, study in named:
        roles = study.tables.get("roles")
        if roles is None or not {"stack", "layer", "head", "role"} <= set(roles):
            continue
        heads = study.heads.drop_duplicates(["stack", "layer", "head"])
        sizes = heads.groupby(["stack", "layer"]).size()
        for (stack, layer, role), some in roles.groupby(["stack", "layer", "role"]):
            count, size = some["head"].nunique(), int(sizes.loc[(stack, layer)])  # type: ignore[index]
            found = {"study": name, "stack": stack, "layer": layer, "role": role}
            yield found | {"heads": count, "of": size, "share": count / size}


def _matches(named: Named, stacks: list[str], seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(a row a pair of heads, a row an assignment) for every two studies."""
    from scipy.stats import spearmanr

    rows, summary = [], []
    for (one, left), (other, right) in combinations(named, 2):
        for stack in stacks:
            here, there, statistics = behaviours(
                *(s.heads[s.heads["stack"] == stack] for s in (left, right))
            )
            if not statistics:
                continue
            for within in WITHIN:
                found = match(here, there, within, seed)
                key = {"study": one, "other": other, "stack": stack, "within": within}
                nearer = found.chance.searchsorted(found.distances + 1e-12, side="right")
                ranks = nearer / len(found.chance)
                for i, (a, b) in enumerate(found.pairs):
                    (layer, head), (other_layer, other_head) = here.places[a], there.places[b]
                    pair = {"layer": layer, "head": head}
                    pair |= {"other_layer": other_layer, "other_head": other_head}
                    numbers = {"distance": found.distances[i], "noise": found.noise[i]}
                    rows.append(key | pair | numbers | {"chance": ranks[i]})
                depths = here.depth[found.pairs[:, 0]], there.depth[found.pairs[:, 1]]
                # Among heads of one depth it would be 1 by construction.
                varied = within == "stack" and len(found.pairs) > 2
                varied = varied and all(np.ptp(depth) > 0 for depth in depths)
                correlation = float(spearmanr(*depths).statistic) if varied else np.nan
                null_low, null_high = np.quantile(found.null, [0.025, 0.975])
                summary.append(
                    key
                    | {
                        "matched": len(found.pairs),
                        "unmatched": len(here.places) + len(there.places) - 2 * len(found.pairs),
                        "distance": found.distances.mean(),
                        "noise": found.noise.mean(),
                        "null": found.null.mean(),
                        "null_low": null_low,
                        "null_high": null_high,
                        "probability": found.probability,
                        "depth_correlation": correlation,
                        "statistics": len(statistics),
                    }
                )
    return COMPARISON_TABLES["matches"].frame(rows), COMPARISON_TABLES["matching"].frame(summary)


def _data(study: Study) -> Section:
    data = study.record.get("data") or {}
    keys = ("files", "used", "tokens", "sequences", "max_length")
    return {key: data[key] for key in keys if key in data}


def _notes(named: Named) -> list[str]:
    """What makes the studies less alike than the models."""
    notes, studies = [], [study for _, study in named]
    read = [[file.get("sha256") for file in _data(study).get("files", [])] for study in studies]
    used = [_data(study).get("used") for study in studies]
    if any(files != read[0] for files in read) or len(set(used)) > 1:
        notes.append(
            "The studies were made on different texts: part of any difference is the texts'."
        )
    if note := length_note([(name, study.record) for name, study in named], ratio=1.02):
        notes.append(note)
    without = [name for name, study in named if "roles" not in study.tables]
    if without:
        notes.append(f"No roles in the study of {', '.join(without)}.")
    limits = [study.record.get("options", {}).get("thresholds") for study in studies]
    if any(one != limits[0] for one in limits):
        notes.append("The roles of these studies begin at different thresholds.")
    return notes
