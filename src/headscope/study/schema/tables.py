"""Every table that a study or a comparison can hold.

`TABLES` are those of a study, `COMPARISON_TABLES` those of `headscope compare`. A table that is not declared (a
statistic of your own may add one) is read as pandas reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headscope.errors import HeadscopeError
from headscope.study.schema.table import (
    CORRECT,
    Columns,
    Table,
    flag,
    number,
    numbered_rows,
    text,
    whole,
)

if TYPE_CHECKING:
    import pandas as pd

HEAD: Columns = text("stack") | whole("layer head")
INTERVAL: Columns = number("value low high")
ROLE: Columns = (
    HEAD
    | text("role")
    | INTERVAL
    | number("baseline threshold")
    | flag("is_sure")
    | text("rule")
    | whole("count")
)
# What a changed model does on the report split, paired with the unchanged model.
CHANGE: Columns = number(
    "loss loss_change loss_low loss_high metric metric_low metric_high metric_change change_low change_high p"
)
SELECTION: Columns = number("selection_loss selection_metric")
TIME: Columns = number("time time_low time_high")
FRONT: Columns = (
    text("aim", is_optional=True)
    | whole("removed left")
    | text("repair")
    | whole("parameters")
    | TIME
    | SELECTION
    | CHANGE
    | flag("is_chosen")
    | whole("draw")
    | text("heads")
    | flag("is_front")
)
TEST: Columns = INTERVAL | text("test") | number("p p_adjusted") | flag("is_significant")
LAYER: Columns = text("stack") | whole("layer")
BEST: Columns = (
    whole("layer head", may_be_empty=True)
    | number("accuracy low high")
    | whole("same_data_best_layer same_data_best_head", may_be_empty=True)
    | number("same_data_best_accuracy")
)


def _of_loss_and_metric(columns: Columns) -> Columns:
    return {f"{of}_{name}": column for of in ("loss", "metric") for name, column in columns.items()}


HEADS = Table(
    "heads",
    "Every statistic of every head",
    "One row for each head and statistic, with its interval.",
    HEAD | text("statistic") | INTERVAL | whole("count"),
)

_STUDY = (
    Table(
        "roles",
        "Roles of heads",
        "One row for each head and role, or undetermined, with the number that the role follows from.",
        ROLE,
    ),
    Table(
        "examples",
        "Examples of roles",
        "Typical examples and counterexamples for each head and role.",
        HEAD
        | text("role direction kind words")
        | whole("query key")
        | number("weight")
        | whole("expected", may_be_empty=True)
        | text("arcs text starts"),
    ),
    Table(
        "relations",
        "The best head for each relation",
        "One row for each relation and direction, with the best head and its accuracy.",
        text("relation direction stack")
        | BEST
        | number("same_data_accuracy baseline")
        | whole("baseline_offset", may_be_empty=True)
        | number("control")
        | whole("count"),
    ),
    Table(
        "relation_heads",
        "Every head for every relation",
        "The accuracy of each head for each relation with enough pairs.",
        HEAD
        | text("relation direction")
        | number("accuracy low high baseline chosen_gain least_gain")
        | flag("is_above")
        | whole("count"),
    ),
    Table(
        "coreference",
        "The best head for each kind of mention",
        "The best head for each kind of mention and set of candidates, next to simple rules.",
        text("kind candidates stack")
        | BEST
        | number("nearest head_match rules chance")
        | whole("count"),
    ),
    Table(
        "coreference_heads",
        "Every head as a finder of antecedents",
        "The accuracy of each head over all mentions.",
        HEAD | number("accuracy low high baseline chosen_gain least_gain") | whole("count"),
    ),
    Table(
        "rare_words",
        "Baselines for rare words",
        "The scores of simple guesses and of uniform attention for rare words.",
        text("kind baseline") | INTERVAL | whole("count"),
    ),
    Table(
        "clusters",
        "Clusters of heads",
        "Position of each head in the plane, its cluster and its nearest head.",
        HEAD
        | number("x y")
        | whole("cluster")
        | whole("twin_layer twin_head", may_be_empty=True)
        | number("twin_distance"),
    ),
    Table(
        "sinks",
        "Which token is the sink of each head",
        "The most frequent sink token and sink position of each head.",
        HEAD
        | text("token", is_optional=True)
        | whole("token_id")
        | number("token_share")
        | whole("position")
        | number("position_share first_share")
        | whole("count")
        | text("token_class", is_optional=True),
    ),
    Table(
        "uniform",
        "What uniform attention would give, by layer",
        "The value of each statistic for uniform attention on the same texts.",
        LAYER | text("statistic") | number("value") | whole("count"),
    ),
    Table(
        "pattern_agreement",
        "Which pattern the rule and the network named",
        "The number of maps for each pair of patterns named by the rule and by the classifier.",
        text("stack rule network") | whole("count"),
    ),
    Table(
        "mixing",
        "Mixing ratio by layer",
        "The share of each layer's output that comes from other tokens.",
        LAYER | text("form") | INTERVAL | whole("count"),
    ),
    Table(
        "contributions",
        "What each part of a layer contributes",
        "The share of each layer's output that comes from each class of tokens.",
        LAYER | text("class form") | INTERVAL | whole("count"),
    ),
    Table(
        "gradients",
        "Gradients by layer and class of tokens",
        "Mean gradients of attention weights by layer and class of tokens.",
        LAYER | text("class measure") | INTERVAL | whole("count"),
    ),
    Table(
        "effective_lengths",
        "Effective attention by length of text",
        "The correlation of raw and effective attention for texts of up to a number of tokens.",
        LAYER | whole("up_to") | INTERVAL | whole("count"),
    ),
    Table(
        "lens_heads",
        "Heads that lenses rank differently",
        "For each lens the head whose rank differs most from its rank in raw attention.",
        HEAD
        | text("statistic lens")
        | number("raw raw_low raw_high through through_low through_high raw_rank rank apart"),
    ),
    Table(
        "lens_examples",
        "Examples of differences between lenses",
        "Texts in which a lens differs most from raw attention.",
        HEAD
        | text("lens words")
        | whole("query raw_key")
        | number("raw_weight raw_key_through")
        | whole("lens_key")
        | number("lens_weight lens_key_raw")
        | whole("keys")
        | number("apart"),
    ),
    Table(
        "lenses",
        "Agreement of lenses with exact ablation",
        "The rank correlation over heads of each statistic and lens with the change of the loss.",
        text("stack statistic lens") | number("correlation low high ceiling") | whole("heads"),
    ),
    Table(
        "significance",
        "Significance of each head",
        "The change of the loss and the metric without each head, with its test.",
        HEAD
        | text("statistic")
        | TEST
        | whole("count")
        | whole("settled_at", may_be_empty=True, is_optional=True),
    ),
    Table(
        "ablations",
        "Changes of loss and metric without several heads",
        "The change of the loss and the metric without each group of heads, with its test.",
        text("kind named") | whole("removed") | _of_loss_and_metric(TEST | whole("count")),
    ),
    Table(
        "all_but_one",
        "The best single head of each site",
        "For each site the head that is best left alone, and the change without the others.",
        text("site left")
        | number("loss loss_low loss_high metric metric_low metric_high p")
        | text("same_data_left")
        | number("same_data_metric")
        | whole("count")
        | number("p_adjusted"),
    ),
    Table(
        "agreement",
        "Agreement of importances with exact ablation",
        "The rank correlation of each importance with the exact change of the loss.",
        text("importance")
        | number("correlation low high ceiling overlap bottom by_chance rank_spread")
        | whole("count"),
    ),
    Table(
        "ceilings",
        "What the true importances would reach, stack by stack",
        "The noise ceiling of rank correlations in each stack.",
        text("stack") | number("ceiling") | whole("heads count"),
    ),
    Table(
        "ranks",
        "Ranks of heads by each importance",
        "The rank of each head by each importance; 1 is the least important.",
        HEAD | text("importance") | number("rank low high"),
    ),
    Table(
        "relevance_layers",
        "Relevance by layer",
        "The relevance that enters and leaves each layer.",
        LAYER | text("part") | INTERVAL | whole("count"),
    ),
    Table(
        "front",
        "Quality and size of the pruned models",
        "One row for each set of removed heads that was reported.",
        FRONT,
    ),
    Table(
        "fronts",
        "The fronts of all searches",
        "The rows of several fronts with the name of the search.",
        FRONT | text("search"),
    ),
    Table(
        "search",
        "Every set that was tried",
        "Every set of heads that the search evaluated, in order.",
        whole("order removed") | number("loss metric") | whole("examples") | text("heads"),
    ),
    Table(
        "survivors",
        "What the heads do that are kept",
        "How many heads with each role a search keeps, and how many chance would keep.",
        text("search")
        | whole("draw removed left")
        | text("role")
        | whole("with_role kept")
        | number("expected p"),
    ),
    Table(
        "fixing",
        "Quality with fixed attention patterns",
        "One row for each set of heads that attend by fixed patterns.",
        text("kind named")
        | whole("fixed learned parameters")
        | TIME
        | SELECTION
        | CHANGE
        | text("heads")
        | flag("is_front is_chosen"),
    ),
    Table(
        "substitutes",
        "Each head's fixed pattern in its place",
        "The fixed pattern of each head and the change of the loss with it.",
        HEAD | text("pattern task") | number("loss_change low high"),
    ),
    Table(
        "gates",
        "Gates, step by step",
        "The gate of each head during training.",
        text("aim") | whole("step") | HEAD | number("gate"),
    ),
    Table(
        "gate_roles",
        "What the heads do whose gates were learned",
        "The roles of the heads in the study given by `roles`.",
        HEAD | text("role"),
    ),
    Table(
        "learned_masks",
        "Learned masks",
        "One row for each training run of a mask.",
        text("aim") | whole("seed") | SELECTION | CHANGE | number("sparsity", is_optional=True),
    ),
    Table(
        "positions",
        "Learned masks by kinds of positions",
        "The mean of the learned mask over each kind of positions.",
        text("aim positions") | INTERVAL | whole("seeds"),
    ),
    Table(
        "mask_runs",
        "Every run under a mask",
        "One row for each mask, way of training and seed.",
        text("mode mask") | whole("seed") | number("sparsity") | CHANGE,
    ),
    Table(
        "mask_table",
        "Cost of each mask",
        "One row for each mask and way of training, over seeds.",
        text("mode mask")
        | whole("seeds")
        | number("sparsity metric metric_change change_low change_high loss loss_change"),
    ),
    Table(
        "film",
        "Every statistic at every checkpoint",
        "The rows of heads.csv for each checkpoint.",
        HEADS.columns | whole("step"),
    ),
    Table(
        "film_roles",
        "Roles at every checkpoint",
        "The rows of roles.csv for each checkpoint.",
        ROLE | whole("step"),
    ),
    Table(
        "probes",
        "Accuracy of each probe",
        "The share of words whose governor each probe finds.",
        text("probe") | number("uas low high") | whole("parameters count"),
    ),
    Table(
        "probe_weights",
        "The weight of each head in the parser",
        "The weight of each head in the attention-only probe.",
        HEAD | number("dependent governor"),
    ),
)

_DIFFERENCE: Columns = number(
    "cosine cosine_low cosine_high js js_low js_high floor_cosine floor_js change"
) | whole("count floor_count")
_PAIR: Columns = text("study other stack within")
_NULL: Columns = number("null null_low null_high probability")

_COMPARISON = (
    Table(
        "layers",
        "Statistics by layer",
        "The mean of each statistic over the heads of each layer of each study.",
        text("study")
        | LAYER
        | number("depth")
        | text("statistic")
        | number("mean low high least most")
        | whole("heads"),
    ),
    Table(
        "smoothness",
        "Correlation of neighbouring layers",
        "How similar neighbouring layers are, next to layers in random order.",
        text("study stack statistic form") | INTERVAL | _NULL | whole("pairs"),
    ),
    Table(
        "roles",
        "Roles by layer",
        "The share of heads of each layer that have each role.",
        text("study") | LAYER | text("role") | whole("heads of") | number("share"),
    ),
    Table(
        "matches",
        "Matched heads",
        "One row for each pair of heads matched by their statistics.",
        _PAIR | whole("layer head other_layer other_head") | number("distance noise chance"),
    ),
    Table(
        "matching",
        "Quality of the matching",
        "One row for each matching of two studies.",
        _PAIR
        | whole("matched unmatched")
        | number("distance noise")
        | _NULL
        | number("depth_correlation")
        | whole("statistics"),
    ),
    Table(
        "changes",
        "Change of each head",
        "How much the attention of each head differs between two models on the same texts.",
        HEAD | _DIFFERENCE,
    ),
    Table(
        "layer_changes",
        "Change of each layer",
        "How much the mean attention of each layer differs between two models on the same texts.",
        LAYER | _DIFFERENCE,
    ),
)

TABLES = {table.name: table for table in _STUDY}
COMPARISON_TABLES = {table.name: table for table in _COMPARISON}
PROBE_TABLES = {name: TABLES[name] for name in ("probes", "probe_weights")}


def read_table(path: Path, declared: dict[str, Table] = TABLES) -> pd.DataFrame:
    """A table from its file: checked if it is declared, else as pandas reads it."""
    import pandas as pd

    table = declared.get(path.stem)
    return pd.read_csv(path) if table is None else table.read(path)


def check_heads(frame: pd.DataFrame, model: object, path: Path) -> None:
    """Raise an error if a row names a head that the model of the run record does not have."""
    if not {"stack", "layer", "head"} <= set(frame.columns) or not isinstance(model, Mapping):
        return
    layers, heads = (model.get(name) for name in ("layers", "heads"))
    if not isinstance(layers, Mapping) or not isinstance(heads, Mapping) or not layers:
        return
    places = frame[["stack", "layer", "head"]]
    sizes = [[of.get(stack, 0) for stack in places["stack"]] for of in (layers, heads)]
    is_known = places["layer"].between(0, sizes[0], inclusive="left") & places["head"].between(
        0, sizes[1], inclusive="left"
    )
    wrong = places[~is_known & places["layer"].notna() & places["head"].notna()]
    if len(wrong):
        stack, layer, head = wrong.iloc[0]
        row = int(wrong.index[0])
        where = f"{path}:{_line(path, row)}" if path.suffix == ".csv" else f"{path}, row {row}"
        shapes = [f"{name}: {layers[name]} layers of {heads.get(name)} heads" for name in layers]
        raise HeadscopeError(
            f'head "{stack}.{layer}.{head}" is not in the model',
            where=where,
            expected=f"a head of {', '.join(shapes)}, counted from 0",
            mend=CORRECT,
        )


def _line(path: Path, row: int) -> int:
    return next(line for i, (line, _) in enumerate(numbered_rows(path)) if i == row)
