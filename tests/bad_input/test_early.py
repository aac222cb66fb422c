"""What is answered, and said, before torch is imported: a typing mistake must not take seconds.

All command lines are run in one child process in which an import of torch or transformers is noticed.
"""
# ruff: noqa: E501 - whole messages, a line each

from __future__ import annotations

import json
import math
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from headscope.commands import app
from headscope.commands._flags import to_flags
from headscope.config.names import (
    IMPORTANCES,
    LENSES,
    SEARCHES,
    TASKS,
    TOKEN_MAPS,
    statistics_of_texts,
)
from headscope.config.requirements import SEARCH_BY
from headscope.errors import choices
from headscope.heads import FORM
from headscope.model.declared_shape import read_shape

CHILD = """
import contextlib, io, json, sys

class Imported(BaseException):
    pass

class Hook:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "transformers"):
            raise Imported(name)

sys.meta_path.insert(0, Hook())
from headscope.commands import main

def ended(words):
    sys.argv = ["headscope", *words]
    try:
        main()
    except SystemExit as end:
        return end.code
    except Imported:
        return "torch"

answers = []
for words in json.load(sys.stdin):
    with contextlib.redirect_stderr(io.StringIO()) as err, contextlib.redirect_stdout(io.StringIO()):
        end = ended(words)
    answers.append([end, err.getvalue()])
json.dump(answers, sys.stdout)
"""

ON_TASK = "--task sst2 --data dev.tsv"
PRUNE = f"prune model {ON_TASK} --out new"
NO_TARGET = "prune requires --heads, --plan, or --task and --data to search for heads with."
NO_FILE = "cannot be read: No such file or directory. Expected a text file, or one in gzip. Check the path."
NO_TREEBANK = "gone.conllu: there is no such file here. Expected a file, or a treebank that comes with headscope: ewt-sample."
NOT_EMPTY = "full: the directory is neither a study nor empty. Expected the name of a new directory. Choose another --out."

# What is wrong whatever the model is
WRONG: dict[str, str] = {
    "analyze model --corpus gone.txt --out new": "gone.txt: there is no such file here. Expected a file, or a corpus "
    "that comes with headscope: wikipedia-pairs.",
    "analyze model --corpus gone/gone.txt --out new": f"gone/gone.txt: {NO_FILE}",
    "analyze model --treebank gone/gone.conllu --out new": f"gone/gone.conllu: {NO_FILE}",
    "analyze model --treebank gone.conllu --out new": NO_TREEBANK,
    "analyze model --coreference gone.conll --out new": f"gone.conll: {NO_FILE}",
    "analyze model --corpus good.txt --frequency gone/list --out new": f"gone/list: {NO_FILE}",
    "analyze model --corpus wikipedia-pairs --out new": "wikipedia-pairs: this corpus holds pairs of texts. Add --pairs.",
    "analyze model --corpus good.txt --out full": NOT_EMPTY,
    "analyze model --corpus good.txt --out good.txt": "good.txt: this is a file. Expected the name of a new directory. "
    "Choose another --out.",
    "analyze model --corpus good.txt --out study": "study: a study is already there. Add --overwrite "
    "to replace it, or choose another --out.",
    "demo --out study": "study: a study is already there. Add --overwrite to replace it, or choose "
    "another --out.",
    "analyze ./gone --corpus good.txt --out new": "./gone: there is no such directory. Check the path; a hub id has the "
    "form org/name, and headscope models lists the named models.",
    "analyze full --corpus good.txt --out new": "full: no config.json here. Expected the directory of a transformers "
    "model. Give the directory that save_pretrained wrote, or a name (headscope models).",
    "analyze good.txt --corpus good.txt --out new": "good.txt: this is a file. Expected the directory of a transformers "
    "model. Give the directory it is in.",
    "analyze model --revision main --corpus good.txt --out new": '--revision "main": "model" is a directory. Expected a '
    "hub id with it.",
    "analyze model --corpus good.txt --lens rollout --out new": '--lens: "rollout" is a map of tokens over all heads, not '
    "a lens of single heads. Expected some of "
    f"{', '.join(LENSES)}. To see it: headscope look MODEL TEXT --lens "
    'rollout, or headscope.token_map(model, text, by="rollout").',
    "analyze model --corpus good.txt --statistics previuos --out new": '--statistics: "previuos" is not a statistic. '
    f"Expected {choices('previuos', statistics_of_texts())}",
    "analyze model --corpus good.txt --threshold rar=1 --out new": '--threshold: "rar" is not a threshold. Expected '
    "beyond, block, broad, confident, neighbour, positional, rare, relation, sink or token; did you mean \"rare\"?",
    "analyze model --corpus good.txt --threshold broad=2 --out new": "--threshold: broad must be a number "
    "from 0 to 1, got 2.0.",
    "analyze model --corpus good.txt --threshold sink --out new": '--threshold: "sink" has no value. Expected NAME=VALUE, '
    "such as sink=0.3.",
    "analyze model --corpus good.txt --batch-size 0 --out new": "--batch-size must be at least 1, got 0.",
    "analyze model --corpus good.txt --max-length 0 --out new": "--max-length must be at least 1, got 0.",
    "analyze model --corpus good.txt --long-texts cut --out new": '--long-texts must be error, skip, truncate or window, '
    'got "cut".',
    "analyze model --corpus good.txt --dtype float31 --out new": '--dtype must be bfloat16, float16, float32 or '
    'float64, got "float31". Did you mean "float32"?',
    "analyze model --corpus good.txt --device gpu --out new": '--device: "gpu" is not a device. Expected auto, cpu, cuda, '
    'cuda:1 or mps; did you mean "cuda"?',
    "analyze model --corpus good.txt --mask stra --out new": '--mask "stra": "stra" is not a mask. Expected bigbird, dense, '
    "diagonal, first-and-last, fixed, logsparse, longformer, no-diagonal, random, star, strided or window; did you mean "
    '"star"?',
    "analyze model --corpus good.txt --mask window:height=2 --out new": '--mask "window:height=2": "height" is not a '
    "parameter of this mask. Expected width=4.",
    "analyze model --corpus good.txt --mask gone.npz --out new": "gone.npz: there is no such file. Expected a mask that headscope "
    "masks learn wrote, or an .npy file of n x n booleans.",
    "look model text --lens rolout --out new.html": f'--lens must be {choices("", (*LENSES, *TOKEN_MAPS))}, '
    'got "rolout". Did you mean "rollout"?',
    'look model "" --out new.html': 'text "": there are no tokens in it. Expected some text.',
    "look model text --out good.txt/new.html": 'good.txt/new.html: "good.txt" is a file, not a folder. Choose another '
    "path.",
    "evaluate model --task sts-b --data dev.tsv": f'--task: "sts-b" is not a task. Expected {choices("sts-b", TASKS)}',
    "evaluate model --task lm --data dev.tsv": f'--task: "lm" is not a task. Expected {", ".join(TASKS[:-1])} or '
    f'{TASKS[-1]}; did you mean "causal" or "mlm"?',
    "evaluate model --task sst2 --data gone.tsv": "gone.tsv: no such file or directory. Expected a file, or a directory with train, dev "
    "and test files.",
    "evaluate model --task sst2 --data full": "full: no file for dev here, only thesis.txt. Expected dev.tsv, say.",
    "evaluate model --task sst2 --data dev.tsv --split deve": '--split: "deve" is not a split. Expected dev, dev:half-a, dev:half-b, test or train; '
    'did you mean "dev"?',
    "evaluate model --task sst2 --data dev.tsv --columns a": '--columns must be EXPECTED=YOURS,EXPECTED=YOURS…, got "a".',
    f"importance model {ON_TASK} --by gradiant --out new": f'--by must be {choices("", ("all", *IMPORTANCES))}, '
    'got "gradiant". Did you mean "gradient"?',
    f"importance model {ON_TASK} --heads 3.x --out new": f'--heads: "3.x" does not name a head. Expected {FORM}.',
    f"importance model {ON_TASK} --kind pair --out new": "--kind pair: pairs of all heads are too many. Name some: "
    "--heads 3.2,4.*.",
    f"importance model {ON_TASK} --sequential-test 2 --out new": "--sequential-test must be above 0 and below 1, got 2.",
    f"{PRUNE} --heads 3.x": f'--heads: "3.x" does not name a head. Expected {FORM}.',
    f"{PRUNE} --remove 2 --search bean": f'--search must be {choices("", SEARCHES)}, got "bean". '
    'Did you mean "beam"?',
    f"{PRUNE} --remove 2 --form tiny": '--form must be onnx, plain or small, got "tiny".',
    f"{PRUNE} --remove 2 --repair glue": '--repair: "glue" is not a repair. Expected fold or refit.',
    f"{PRUNE} --sparsity 2": "--sparsity must be above 0 and below 1, got 2.",
    "prune model --out new": NO_TARGET,
    f"prune small {ON_TASK} --remove 9 --out new": "--remove: cannot remove 9 of 8 heads. Expected at most 8.",
    f"prune small {ON_TASK} --remove 5 --candidates 1.* --out new": "--remove: cannot remove 5 of 4 heads. Expected at most 4.",
    "prune small --heads 2.1 --out new": '--heads: "2.1" is not in this model. Expected '
    "encoder layers 0 to 1 with heads 0 to 3.",
    f"importance small {ON_TASK} --heads 0.4 --out new": '--heads: "0.4" is not in this model. Expected '
    "encoder layers 0 to 1 with heads 0 to 3.",
    "analyze small --corpus good.txt --max-length 99 --out new": "--max-length: 99 tokens are more than small can read. "
    "Expected at most 64.",
    "prune model --remove 3 --dry-run": "a search for heads requires --task and --data.",
    "prune model --plan gone.json --out new": "gone.json: cannot be read: No such file or directory. Expected a plan "
    "that headscope wrote.",
    f"prune model {ON_TASK} --out new --keep-metric 99": "--keep-metric must be the share of the unpruned metric to keep, "
    "got 99. Did you mean 0.99?",
    f"prune model {ON_TASK} --out new --keep-metric 0": "--keep-metric must be the share of the unpruned metric to keep, "
    "got 0. For example 0.99.",
    f"fixed-patterns model {ON_TASK} --out new --keep-metric 99": "--keep-metric must be the share of the unpruned metric to keep, "
    "got 99. Did you mean 0.99?",
    "prune model --heads 0.1": "prune requires --out, or --dry-run to write nothing.",
    "finetune model --task sst2 --data two --epochs 0 --out new": "--epochs must be at least 1, got 0.",
    "finetune model --task sst2 --data two --fix 0.1=prevous --out new": '--fix: "prevous" is not a fixed pattern. Expected '
    'current, end, first, left, next, previous, raganato, right, start or uniform; did you mean "previous"?',
    "gate model --task sst2 --data two --out new": "gate requires either --keep or --penalty, got neither.",
    "gate model --task sst2 --data two --keep some --out new": '--keep must be one or more whole numbers such as 3,10,20, '
    'got "some".',
    "masks learn model --task sst2 --data two --out new": "masks learn requires --penalty, --sparsity or --soft.",
    "masks learn model --sparsity 0.5 --out new": "masks learn requires either --task and --data, or --objective "
    "and --corpus.",
    "compare study gone --out new": "gone: there is no such directory. Expected a study that a command wrote.",
    "report study full --out new.html": "full/run.json: not a study (No such file or directory). Expected a directory written "
    "by headscope analyze, or by another command that makes a study.",
    "report study --out page.png": 'page.png: the name of a page must end in .html, got "page.png".',
    "analyze bert --corpus good.txt --out new.html": (
        'new.html: a directory is written, and its name must not end in .html, got "new.html". Choose another --out.'
    ),
    "serve model --token short": "--token must be eight or more letters, digits, hyphens and "
    "underscores.",
    "serve model --study gone": "gone: there is no such directory. Expected a study that a command wrote.",
    "speed model --against gone": 'no model "gone". Expected a directory, a hub id such as google-bert/bert-base-uncased, '
    "or one of minilm, mpnet, opus-mt-en-fr, opus-mt-fr-en, rxnfp, rxnfp-classes, rxnfp-ft, rxnmapper or smollm2. headscope models "
    "describes the named ones.",
    "masks show stra": 'MASK "stra": "stra" is not a mask. Expected bigbird, dense, diagonal, first-and-last, fixed, '
    'logsparse, longformer, no-diagonal, random, star, strided or window; did you mean "star"?',
    "masks show star --out star.gif": 'star.gif: the name of a picture must end in .svg or .png, got ".gif".',
    "analyze gone --checkpoints --corpus good.txt --out new": "gone: there is no such directory. Expected a model that "
    "headscope trained with --checkpoints N.",
    "pretrain --corpus gone.txt --out new": "gone.txt: there is no such file here. Expected a file, or a corpus that "
    "comes with headscope: wikipedia-pairs.",
    "probe model --treebank gone.conllu --out new": NO_TREEBANK,
    "ablate-edges model --corpus good.txt --to specials --out new": '--to must be classification, content, punctuation, '
    'separator or special, got "specials". Did you mean "special"?',
}  # fmt: skip

# Options that are given and have no effect: the option, and what it requires
TREE = "analyze model --treebank tree.conllu --out new"
TEXT = "analyze model --corpus good.txt --out new"
BY_GRADIENT = f"importance model {ON_TASK} --by gradient --out new"
NAMED = "prune model --heads 0.1 --out new"
POOLED = "a task that compares vectors of texts: stsb or retrieval"
ONE_FILE = "--data DIRECTORY with train, dev and test files; a single file is used for every split"
SEARCH = "a search (--remove N, --sparsity, --keep-metric or --speedup); here --heads or --plan names the heads"
WITHOUT_EFFECT: dict[str, tuple[str, str]] = {
    f"{BY_GRADIENT} --kind shared": ("--kind", "--by ablation (or all)"),
    f"{BY_GRADIENT} --kind only": ("--kind", "--by ablation (or all)"),
    f"{BY_GRADIENT} --kind site": ("--kind", "--by ablation (or all)"),
    f"{BY_GRADIENT} --kind layer": ("--kind", "--by ablation (or all)"),
    f"{BY_GRADIENT} --kind all": ("--kind", "--by ablation (or all)"),
    f"{BY_GRADIENT} --kind head": ("--kind", "--by ablation (or all)"),
    f"{BY_GRADIENT} --mode mean": ("--mode", "--by ablation (or all)"),
    f"{BY_GRADIENT} --heads 0.1": ("--heads", "--by ablation (or all)"),
    f"{BY_GRADIENT} --sequential-test 0.05": ("--sequential-test", "--by ablation (or all)"),
    f"importance model {ON_TASK} --sequential-test 0.05 --kind site --out new": ("--sequential-test", "--kind head"),
    f"importance model {ON_TASK} --heads 0.1 --kind layer,site --out new": ("--heads", "--kind head or pair"),
    f"importance model {ON_TASK} --pooling first --out new": ("--pooling", POOLED),
    f"importance model {ON_TASK} --normalized --out new": ("--normalized", "--by gradient (or all)"),
    f"importance model {ON_TASK} --relevance-rules voita --out new": ("--relevance-rules", "--by relevance (or all)"),
    f"importance model {ON_TASK} --open-special --out new": ("--open-special", "--mask NAME"),
    f"{TEXT} --control": ("--control", "--treebank FILE"),
    f"{TEXT} --lenient": ("--lenient", "--treebank FILE or --coreference FILE"),
    f"{TEXT} --word-pooling mean": ("--word-pooling", "--treebank, --coreference or --frequency"),
    f"{TEXT} --open-special": ("--open-special", "--mask NAME, or checkpoints of a training with a mask"),
    f"{TEXT} --statistics entropy --all-rows": ("--all-rows", "--statistics with twin-distance, or all statistics"),
    f"{TEXT} --threshold relation=0.2": ("--threshold", "--treebank FILE for the threshold relation"),
    f"{TEXT} --threshold rare=0.2": ("--threshold", "--frequency SOURCE for the threshold rare"),
    f"{TEXT} --pooling first": ("--pooling", "--lens with gradient"),
    f"{TREE} --pairs": ("--pairs", "--corpus FILE"),
    f"{TREE} --long-texts skip": ("--long-texts", "--corpus FILE"),
    "analyze model --coreference tree.conllu --frequency english --out new": (
        "--frequency", "--corpus FILE or --treebank FILE"),
    "compare study study2 --corpus good.txt --out new": ("--corpus", "--models A B"),
    "compare study study2 --limit 3 --out new": ("--limit", "--models A B and --corpus FILE"),
    "compare study study2 --pairs --out new": ("--pairs", "--models A B and --corpus FILE"),
    "compare study study2 --max-length 8 --out new": ("--max-length", "--models A B and --corpus FILE"),
    "compare study study2 --batch-size 4 --out new": ("--batch-size", "--models A B and --corpus FILE"),
    "compare study study2 --models model model --out new": ("--models", "--corpus FILE"),
    f"evaluate model {ON_TASK} --open-special": ("--open-special", "--mask NAME"),
    f"evaluate model {ON_TASK} --pooling first": ("--pooling", POOLED),
    f"evaluate model {ON_TASK} --prompt query": ("--prompt", POOLED),
    "analyze model --checkpoints --corpus good.txt --open-special --out new": (
        "--open-special", "--mask NAME, or checkpoints of a training with a mask"),
    "analyze model --checkpoints --corpus good.txt --threshold relation=0.2 --out new": (
        "--threshold", "--treebank FILE for the threshold relation"),
    "finetune model --task sst2 --data two --pooling first --out new": ("--pooling", POOLED),
    f"fixed-patterns model {ON_TASK} --pooling first --out new": ("--pooling", POOLED),
    "gate model --task sst2 --data two --keep 2 --prompt query --out new": ("--prompt", POOLED),
    "masks learn model --objective mlm --corpus good.txt --soft --pooling first --out new": ("--pooling", POOLED),
    f"masks compare model {ON_TASK} --pooling first --out new": ("--pooling", POOLED),
    f"evaluate model {ON_TASK} --split test": ("--split", ONE_FILE),
    f"importance model {ON_TASK} --split train --out new": ("--split", ONE_FILE),
    f"fixed-patterns model {ON_TASK} --report-on test --out new": ("--report-on", ONE_FILE),
    f"masks compare model {ON_TASK} --report-on test --out new": ("--report-on", ONE_FILE),
    f"{PRUNE} --remove 2 --select-on train": ("--select-on", ONE_FILE),
    "analyze model --checkpoints --treebank tree.conllu --pairs --out new": ("--pairs", "--corpus FILE"),
    "finetune model --task sst2 --data two --layers 2 --out new": ("--layers", "--from-scratch"),
    "finetune model --task sst2 --data two --vocabulary 900 --out new": ("--vocabulary", "--from-scratch"),
    "finetune model --task sst2 --data two --open-special --out new": ("--open-special", "--mask NAME"),
    f"fixed-patterns model {ON_TASK} --heads 0.1 --patterns 0.1=first --out new": (
        "--heads", "that --patterns is left out: they name heads"),
    "gate model --task sst2 --data two --keep 2 --hidden 8 --out new": ("--hidden", "--from-scratch"),
    "gate model --task sst2 --data two --keep 2 --freeze-weights --learning-rate 1e-4 --out new": (
        "--learning-rate", "weights that are trained: leave --freeze-weights out"),
    "gate model --task sst2 --data two --keep 2 --freeze-weights --settle 0.5 --out new": (
        "--settle", "weights that are trained: leave --freeze-weights out"),
    "gate model --task sst2 --data two --keep 2 --freeze-weights --from-scratch --out new": (
        "--freeze-weights", "trained weights: leave --from-scratch out"),
    "ablate-edges model --corpus good.txt --open-special --out new": ("--open-special", "--mask NAME"),
    "masks learn model --task sst2 --data two --soft --settle 0.5 --out new": (
        "--settle", "a mask that becomes 0 or 1: leave --soft out"),
    "masks learn model --task sst2 --data two --sparsity 0.5 --freeze-weights --learning-rate 1e-4 --out new": (
        "--learning-rate", "weights that are trained: leave --freeze-weights out"),
    "masks learn model --objective mlm --corpus good.txt --soft --report-on test --out new": (
        "--report-on", "a directory with train and dev files"),
    "look model text --target 1 --lens raw,rollout --out new.html": (
        "--target", "--lens with one that takes gradients: gradient, gradient-rollout, relevance"),
    "look model text --pooling first --lens raw,rollout --out new.html": (
        "--pooling", "--lens with gradient or gradient-rollout"),
    "look model text --open-special --out new.html": ("--open-special", "--mask NAME"),
    f"masks compare model {ON_TASK} --epochs 3 --out new": ("--epochs", "--start MODEL"),
    f"masks compare model {ON_TASK} --learning-rate 1e-4 --out new": (
        "--learning-rate", "--repair N or --start MODEL"),
    f"masks compare model {ON_TASK} --limit 9 --out new": ("--limit", "--repair N or --start MODEL"),
    f"masks compare model {ON_TASK} --mask star --seeds 1,2 --out new": (
        "--seeds", "--repair, --start or a mask that is drawn by chance"),
    "pretrain --corpus good.txt --steps 3 --epochs 1 --out new": ("--epochs", "that --steps is left out"),
    "pretrain --corpus good.txt --open-special --out new": ("--open-special", "--mask NAME"),
    f"{NAMED} --search beam": ("--search", SEARCH),
    f"{NAMED} --search rank": ("--search", SEARCH),
    f"{NAMED} --beam-width 3": ("--beam-width", SEARCH),
    f"{NAMED} --beam-width 4": ("--beam-width", SEARCH),
    f"{NAMED} --step 0.2": ("--step", SEARCH),
    f"{NAMED} --distil": ("--distil", "--recover N, as in --recover 1"),
    f"{NAMED} --report-on dev": ("--report-on", "--task NAME and --data PATH"),
    f"{NAMED} --columns a=b": ("--columns", "--task NAME and --data PATH"),
    f"{NAMED} --max-length 9": ("--max-length", "--task NAME and --data PATH"),
    f"{NAMED} --batch-size 32": ("--batch-size", "--task NAME and --data PATH"),
    f"{NAMED} --learning-rate 5e-5": ("--learning-rate", "--recover N, as in --recover 1"),
    f"{NAMED} --select-on dev:half-a": ("--select-on", "a search, --repair or --recover"),
    f"{NAMED} --seed 1": ("--seed", "a search or --recover"),
    f"{PRUNE} --remove 2 --by gradient-second": ("--by", to_flags(SEARCH_BY)),
    f"{PRUNE} --remove 2 --step 0.1": ("--step", "--search iterative"),
    f"{PRUNE} --remove 2 --search rank --expansion 12": ("--expansion", "--search beam"),
    f"{PRUNE} --remove 2 --beam-width 4 --search greedy": ("--beam-width", "--search beam"),
    f"{PRUNE} --remove 2 --draws 3": ("--draws", "--search random"),
    f"{PRUNE} --remove 2 --relevance-rules voita": ("--relevance-rules", f"{to_flags(SEARCH_BY)} with --by relevance"),
    f"prune model {ON_TASK} --remove 2 --dry-run --resume": ("--resume", "--out DIR: --dry-run writes nothing"),
    f"prune model {ON_TASK} --remove 2 --dry-run --repair fold": ("--repair", "that --dry-run is left out"),
    "serve model --open-special": ("--open-special", "--mask NAME"),
    "speed model --mask star --against model": ("--against", "that --mask is left out"),
    "speed model --out new.svg": ("--out", "--mask NAME"),
}  # fmt: skip

# Commands that are right: what each says before torch is imported
RIGHT: dict[str, str] = {
    TEXT: "loading model …",
    "compare study study2 --out new": "reading study and study2 …",
    "demo --out new": "loading minilm …",
    "doctor": "loading torch …",
    f"evaluate model {ON_TASK}": "loading model …",
    f"evaluate model {ON_TASK} --split dev:half-b": "loading model …",
    "evaluate model --task sst2 --data tested/test.tsv --split test": "loading model …",
    "analyze model --checkpoints --corpus good.txt --out new": "reading the checkpoints of model …",
    "finetune model --task sst2 --data two --out new": "loading model …",
    f"fixed-patterns model {ON_TASK} --out new": "loading model …",
    "report study study2 --out new.html": "reading study and study2 …",
    "gate model --task sst2 --data two --keep 2 --out new": "loading model …",
    f"importance model {ON_TASK} --out new": "loading model …",
    "head study 0.1": "reading study …",
    f"importance model {ON_TASK} --kind pair,layer --heads 0.1,0.2 --out new": "loading model …",
    f"prune small {ON_TASK} --remove 8 --out new": "loading small …",
    "prune small --heads 1.3,0.* --out new": "loading small …",
    "analyze small --corpus good.txt --max-length 64 --out new": "loading small …",
    "finetune small --task sst2 --data two --from-scratch --max-length 99 --out new": "loading small …",
    f"prune cut {ON_TASK} --remove 9 --out new": "loading cut …",
    "prune model --heads 0.1 --task sst2 --data tested --report-on test --out new": "loading model …",
    "ablate-edges model --corpus good.txt --out new": "loading model …",
    "masks learn model --task sst2 --data two --soft --out new": "loading model …",
    "look model text --out new.html": "loading model …",
    "masks": "loading torch …",
    "masks list": "loading torch …",
    PRUNE: "loading model …",
    "masks show star": "loading torch …",
    f"masks compare model {ON_TASK} --out new": "loading model …",
    "pretrain --corpus good.txt --out new": "reading good.txt …",
    "probe model --treebank tree.conllu --out new": "loading model …",
    f"{PRUNE} --remove 2": "loading model …",
    "report study --out new.html": "reading study …",
    "serve model": "loading model …",
    "speed model": "loading model …",
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int | str, str]]:
    """How every command line above ended (`torch`: by importing it) and what it said."""
    work_folder = tmp_path_factory.mktemp("early")
    for name in ("full", "study", "study2", "two", "tested", "model", "small", "cut"):
        (work_folder / name).mkdir()
    (work_folder / "full" / "thesis.txt").write_text("years of work")
    for name in ("study", "study2"):
        (work_folder / name / "run.json").write_text('{"schema": 1}')
    for name in ("two/train.tsv", "two/dev.tsv", "tested/test.tsv", "dev.tsv"):
        (work_folder / name).write_text("sentence\tlabel\nthe cat\t0\nthe mat\t1\n")
    (work_folder / "model" / "config.json").write_text('{"model_type": "bert"}')
    shape = {"num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64}
    for name in ("small", "cut"):
        (work_folder / name / "config.json").write_text(json.dumps({"model_type": "bert", **shape}))
    (work_folder / "cut" / "cut.json").write_text("{}")
    (work_folder / "good.txt").write_text("the cat sat.\nthe mat\n")
    (work_folder / "tree.conllu").write_text("1\tthe\tthe\tDET\t_\t_\t2\tdet\t_\t_\n")
    lines = [*WRONG, *WITHOUT_EFFECT, *RIGHT, "models", "models list", "models verify gone"]
    inputs = json.dumps([shlex.split(line) for line in lines])
    done = subprocess.run(
        [sys.executable, "-c", CHILD], input=inputs, capture_output=True, text=True, cwd=work_folder
    )
    assert done.returncode == 0, done.stderr
    names = "cut dev.tsv full good.txt model small study study2 tested tree.conllu two"
    assert sorted(path.name for path in work_folder.iterdir()) == names.split()
    return dict(zip(lines, (tuple(answer) for answer in json.loads(done.stdout)), strict=True))


@pytest.mark.parametrize("line", WRONG)
def test_a_mistake_is_answered_before_torch_is_imported(
    answers: dict[str, tuple[int | str, str]], line: str
) -> None:
    assert answers[line] == (2, f"headscope: {WRONG[line]}\n")


@pytest.mark.parametrize("line", WITHOUT_EFFECT)
def test_an_option_without_effect_is_refused(
    answers: dict[str, tuple[int | str, str]], line: str
) -> None:
    option, requires = WITHOUT_EFFECT[line]
    assert answers[line] == (
        2,
        f"headscope: {option} requires {requires}. It has no effect otherwise.\n",
    )


@pytest.mark.parametrize("line", RIGHT)
def test_a_command_says_what_it_does_before_it_imports_torch(
    answers: dict[str, tuple[int | str, str]], line: str
) -> None:
    assert answers[line] == ("torch", f"{RIGHT[line]}\n")


def test_every_command_that_needs_torch_has_a_first_line(
    answers: dict[str, tuple[int | str, str]],
) -> None:
    groups = {"": app} | {f"{one.name} ": one.typer_instance for one in app.registered_groups}
    commands = {
        prefix + (command.name or command.callback.__name__)  # type: ignore[union-attr]
        for prefix, group in groups.items()
        for command in group.registered_commands  # type: ignore[union-attr]
    }
    named = {line.split(" ")[0] for line in RIGHT} | {
        " ".join(line.split(" ")[:2]) for line in RIGHT
    }
    assert {name for name in commands | {"masks"} if not name.startswith("models ")} <= named
    assert answers["models"][0] == answers["models list"][0] == 0
    assert answers["models verify gone"][0] == 2


def test_a_tokenizer_without_a_limit_has_that_of_the_positions(tmp_path: Path) -> None:
    config = {
        "model_type": "bert",
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "max_position_embeddings": 64,
    }
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    for stated, longest in ((math.inf, 64), (1e30, 64), (16, 16), (math.nan, 64)):
        (tmp_path / "tokenizer_config.json").write_text(
            json.dumps({"model_max_length": stated}), "utf-8"
        )
        shape = read_shape(str(tmp_path))
        assert shape is not None
        assert (len(shape.heads), shape.longest) == (6, longest)
