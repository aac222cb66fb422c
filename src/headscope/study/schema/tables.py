"""Every table that a study or a comparison can hold.

`TABLES` are those of a study, `COMPARISON_TABLES` those of `headscope compare`. A table that is not declared (a
statistic of your own may add one) is read as pandas reads it.

A declaration has the name and the title of a table, a sentence, and its columns (see `parse_columns`). Columns that
several tables have in common are declared once, as a group with a name in capitals.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headscope.errors import HeadscopeError
from headscope.study.schema.check_values import address_of, check_values
from headscope.study.schema.read_file import CORRECT
from headscope.study.schema.table import Table, parse_columns, parse_groups, parse_tables

if TYPE_CHECKING:
    import pandas as pd

# CHANGE: what a changed model does on the report split, paired with the unchanged model.
_GROUPS = parse_groups("""
HEAD = stack: text, layer head: whole
LAYER = stack: text, layer: whole
INTERVAL = value low high: number
TEST = INTERVAL, test: text, p p_adjusted: number, is_significant: flag
ROLE = HEAD, role: text, INTERVAL, baseline threshold: number, is_sure: flag, rule: text, count: whole
BEST = layer head: whole?, accuracy low high: number, same_data_best_layer same_data_best_head: whole?,
    same_data_best_accuracy: number
TIME = time time_low time_high: number
SELECTION = selection_loss selection_metric: number
CHANGE = loss loss_change loss_low loss_high: number,
    metric metric_low metric_high metric_change change_low change_high p: number
FRONT = aim: text optional, removed left: whole, repair: text, parameters: whole, TIME, SELECTION, CHANGE,
    is_chosen: flag, draw: whole, heads: text, is_front: flag
PAIR = study other stack within: text
NULL = null null_low null_high probability: number
DIFFERENCE = cosine cosine_low cosine_high js js_low js_high floor_cosine floor_js change: number,
    count floor_count: whole
""")

HEADS = Table(
    "heads",
    "Every statistic of every head",
    "One row for each head and statistic, with its interval.",
    parse_columns("HEAD, statistic: text, INTERVAL, count: whole", _GROUPS),
)

_STUDY = """
roles: Roles of heads
    One row for each head and role, with the value that the role is based on; undetermined if a head has no role.
    ROLE

examples: Examples of roles
    Clear examples and counterexamples for each head and role.
    HEAD, role direction kind words: text, query key: whole, weight: number, expected: whole?, arcs text starts: text

relations: The best head for each relation
    One row for each relation and direction, with the best head and its accuracy.
    relation direction stack: text, BEST, same_data_accuracy baseline: number, baseline_offset: whole?,
    control: number, count: whole

relation_heads: Every head for every relation
    The accuracy of each head for each relation with enough pairs.
    HEAD, relation direction: text, accuracy low high baseline chosen_gain least_gain: number, is_above: flag,
    count: whole

coreference: The best head for each kind of mention
    The best head for each kind of mention and set of candidates, compared with simple rules.
    kind candidates stack: text, BEST, nearest head_match rules chance: number, count: whole

coreference_heads: How often every head finds the antecedent
    The accuracy of each head over all mentions.
    HEAD, accuracy low high baseline chosen_gain least_gain: number, count: whole

rare_words: Baselines for rare words
    The scores of simple guesses and of uniform attention for rare words.
    kind baseline: text, INTERVAL, count: whole

clusters: Clusters of heads
    Position of each head in the plane, its cluster and its nearest head.
    HEAD, x y: number, cluster: whole, twin_layer twin_head: whole?, twin_distance: number

sinks: Sink token of each head
    The most frequent sink token and sink position of each head.
    HEAD, token: text optional, token_id: whole, token_share: number, position: whole,
    position_share first_share: number, count: whole, token_class: text optional

uniform: Values for uniform attention, by layer
    The value of each statistic for uniform attention on the same texts.
    LAYER, statistic: text, value: number, count: whole

pattern_agreement: Patterns assigned by the rule and by the network
    The number of maps for each pair of patterns assigned by the rule and by the classifier network.
    stack rule network: text, count: whole

mixing: Mixing ratio by layer
    The share of each layer's output that comes from other tokens.
    LAYER, form: text, INTERVAL, count: whole

contributions: Contribution of each class of tokens to a layer
    The share of each layer's output that comes from each class of tokens.
    LAYER, class form: text, INTERVAL, count: whole

gradients: Gradients by layer and class of tokens
    Mean gradients of attention weights by layer and class of tokens.
    LAYER, class measure: text, INTERVAL, count: whole

effective_lengths: Effective attention by length of text
    The correlation of raw and effective attention for texts of up to a number of tokens.
    LAYER, up_to: whole, INTERVAL, count: whole

lens_heads: Heads that lenses rank differently
    For each lens the head whose rank differs most from its rank in raw attention.
    HEAD, statistic lens: text, raw raw_low raw_high through through_low through_high raw_rank rank apart: number

lens_examples: Examples of differences between lenses
    Texts in which a lens differs most from raw attention.
    HEAD, lens words: text, query raw_key: whole, raw_weight raw_key_through: number, lens_key: whole,
    lens_weight lens_key_raw: number, keys: whole, apart: number

lenses: Agreement of lenses with exact ablation
    The rank correlation over heads of each statistic and lens with the change of the loss.
    stack statistic lens: text, correlation low high ceiling: number, heads: whole

significance: Significance of each head
    The change of the loss and the metric when each head is ablated, with its test.
    HEAD, statistic: text, TEST, count: whole, settled_at: whole? optional

ablations: Effect of ablating groups of heads
    The change of the loss and the metric when a group of heads is ablated, with its test.
    kind named: text, removed: whole, loss_value loss_low loss_high: number, loss_test: text,
    loss_p loss_p_adjusted: number, loss_is_significant: flag, loss_count: whole,
    metric_value metric_low metric_high: number, metric_test: text, metric_p metric_p_adjusted: number,
    metric_is_significant: flag, metric_count: whole

all_but_one: The best single head of each site
    For each site the best head to keep, and the change when all others are ablated.
    site left: text, loss loss_low loss_high metric metric_low metric_high p: number, same_data_left: text,
    same_data_metric: number, count: whole, p_adjusted: number

agreement: Agreement of importance scores with exact ablation
    The rank correlation of each importance score with the exact change of the loss.
    importance: text, correlation low high ceiling overlap bottom by_chance rank_spread: number, count: whole

ceilings: Noise ceiling of each stack
    The rank correlation with ablation that the true importance scores would reach in each stack.
    stack: text, ceiling: number, heads count: whole

ranks: Ranks of heads by each importance score
    The rank of each head by each importance score; 1 is the least important.
    HEAD, importance: text, rank low high: number

relevance_layers: Relevance by layer
    The relevance that enters and leaves each layer.
    LAYER, part: text, INTERVAL, count: whole

front: Quality and size of the pruned models
    One row for each set of pruned heads that was evaluated on the report split.
    FRONT

fronts: The fronts of all searches
    The rows of several fronts with the name of the search.
    FRONT, search: text

search: Sets evaluated by the search
    Every set of heads that the search evaluated, in order.
    order removed: whole, loss metric: number, examples: whole, heads: text

survivors: Roles of the kept heads
    How many heads with each role a search keeps, and how many would be kept by chance.
    search: text, draw removed left: whole, role: text, with_role kept: whole, expected p: number

fixing: Quality with fixed attention patterns
    One row for each set of heads that attend by fixed patterns.
    kind named: text, fixed learned parameters: whole, TIME, SELECTION, CHANGE, heads: text, is_front is_chosen: flag

substitutes: Effect of replacing each head by a fixed pattern
    The fixed pattern nearest to each head, and the change of the loss when it replaces the attention of the head.
    HEAD, pattern task: text, loss_change low high: number

gates: Gates during training
    The gate of each head during training.
    aim: text, step: whole, HEAD, gate: number

gate_roles: Roles of heads with learned gates
    The roles of the heads in the study given by `roles`.
    HEAD, role: text

learned_masks: Learned masks
    One row for each training run of a mask.
    aim: text, seed: whole, SELECTION, CHANGE, sparsity: number optional

positions: Learned masks by kinds of positions
    The mean of the learned mask over each kind of pairs of positions.
    aim positions: text, INTERVAL, seeds: whole

mask_runs: Every run under a mask
    One row for each mask, mode of training and seed.
    mode mask: text, seed: whole, sparsity: number, CHANGE

mask_table: Cost of each mask
    One row for each mask and mode of training, averaged over seeds.
    mode mask: text, seeds: whole, sparsity metric metric_change change_low change_high loss loss_change: number

film: Every statistic at every checkpoint
    The rows of heads.csv for each checkpoint.
    HEAD, statistic: text, INTERVAL, count: whole, step: whole

film_roles: Roles at every checkpoint
    The rows of roles.csv for each checkpoint.
    ROLE, step: whole

probes: Accuracy of each probe
    The share of words whose syntactic head (governor) each probe finds.
    probe: text, uas low high: number, parameters count: whole

probe_weights: The weight of each head in the parser
    The weight of each head in the attention-only probe.
    HEAD, dependent governor: number
"""

_COMPARISON = """
layers: Statistics by layer
    The mean of each statistic over the heads of each layer of each study.
    study: text, LAYER, depth: number, statistic: text, mean low high least most: number, heads: whole

smoothness: Correlation of neighbouring layers
    How similar neighbouring layers are, compared with layers in random order.
    study stack statistic form: text, INTERVAL, NULL, pairs: whole, heads: whole optional

roles: Roles by layer
    The share of heads of each layer that have each role.
    study: text, LAYER, role: text, heads of: whole, share: number

matches: Matched heads
    One row for each pair of heads matched by their statistics.
    PAIR, layer head other_layer other_head: whole, distance noise chance: number

matching: Quality of the matching
    One row for each matching of two studies.
    PAIR, matched unmatched: whole, distance noise: number, NULL, depth_correlation: number, statistics: whole

changes: Change of each head
    How much the attention of each head differs between two models on the same texts.
    HEAD, DIFFERENCE

layer_changes: Change of each layer
    How much the attention of the heads of each layer differs between two models on the same texts, on average.
    LAYER, DIFFERENCE
"""

TABLES = parse_tables(_STUDY, _GROUPS)
COMPARISON_TABLES = parse_tables(_COMPARISON, _GROUPS)
PROBE_TABLES = {name: TABLES[name] for name in ("probes", "probe_weights")}


def read_table(path: Path, declared: dict[str, Table] = TABLES) -> pd.DataFrame:
    """A table from its file: checked if it is declared, else as pandas reads it."""
    import pandas as pd

    table = declared.get(path.stem)
    return pd.read_csv(path) if table is None else table.read(path)


def read_tables(folder: Path, model: object) -> dict[str, pd.DataFrame]:
    """All tables of a study except its heads. A file that is neither declared nor readable as a table is not ours."""
    tables = {}
    for path in sorted(folder.glob("*.csv")):
        if path.stem in TABLES:
            tables[path.stem] = read_table(path)
            check_heads(tables[path.stem], model, path)
            check_values(tables[path.stem], path.stem, path)
        elif path.stem != HEADS.name:
            with suppress(OSError, ValueError):
                tables[path.stem] = read_table(path)
    return tables


def check_same_heads(heads: pd.DataFrame, path: Path, source: Path) -> None:
    """Raise an error if heads.csv, an export with ten digits, differs from the heads that were read from `source`."""
    if not path.exists():
        return
    exported = HEADS.read(path)
    if len(exported) != len(heads):
        what = f"must have the {len(heads)} rows of {source.name}, got {len(exported)}"
        raise HeadscopeError(what, where=path, fix=f"{CORRECT} ({source})")
    for name, column in HEADS.columns.items():
        first, second = exported[name].to_numpy(), heads[name].to_numpy()
        if column.kind == "number":
            is_same = np.isclose(first, second, rtol=1e-9, atol=1e-300, equal_nan=True)
        else:
            is_same = first == second
        if not is_same.all():
            row = int(np.argmin(is_same))
            what = (
                f'column "{name}" must be as in {source.name} ({second[row]}), got "{first[row]}"'
            )
            raise HeadscopeError(what, where=address_of(path, row), fix=f"{CORRECT} ({source})")


def check_heads(frame: pd.DataFrame, model: object, path: Path) -> None:
    """Raise an error if a row names a head that the model of the run record does not have."""
    if not {"stack", "layer", "head"} <= set(frame.columns) or not isinstance(model, Mapping):
        return
    layers, heads = (model.get(name) for name in ("layers", "heads"))
    if not isinstance(layers, Mapping) or not isinstance(heads, Mapping) or not layers:
        return
    keys = frame[["stack", "layer", "head"]]
    sizes = [[of.get(stack, 0) for stack in keys["stack"]] for of in (layers, heads)]
    is_layer = keys["layer"].between(0, sizes[0], inclusive="left")
    is_known = is_layer & keys["head"].between(0, sizes[1], inclusive="left")
    wrong = keys[~is_known & keys["layer"].notna() & keys["head"].notna()]
    if len(wrong):
        stack, layer, head = wrong.iloc[0]
        row = int(wrong.index[0])
        shapes = [f"{name}: {layers[name]} layers of {heads.get(name)} heads" for name in layers]
        raise HeadscopeError(
            f'head "{stack}.{layer}.{head}" is not in the model',
            where=address_of(path, row),
            expected=f"a head of {', '.join(shapes)}, counted from 0",
            fix=CORRECT,
        )
