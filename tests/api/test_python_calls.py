"""What a newcomer types in Python: names and paths for models, tuples for heads, and one line for each mistake."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from transformers import BertForSequenceClassification, BertModel

import headscope
from headscope.errors import HeadscopeError
from headscope.heads import Head, HeadSet
from headscope.model.edits import Ablate, Gate, MaskScores, Replace, Uniform
from headscope.model.fixed_patterns import Fixed
from headscope.model.knockout import KnockOut
from worded import glue, saved, worded

TEXTS = ["the cat sat on the mat .", "a dog ran .", "the old house is red ."]
TREE = "1\t{}\t_\tNOUN\t_\t_\t2\tnsubj\t_\t_\n2\t{}\t_\tVERB\t_\t_\t0\troot\t_\t_\n\n"
FOUR = ((0, 0), (0, 1), (1, 0), (1, 1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`bert` and `classifier` (2 layers × 2 heads), data/train.tsv and dev.tsv, train.conllu and test.conllu."""
    folder = tmp_path_factory.mktemp("calls")
    saved(folder / "bert", BertModel)
    saved(folder / "classifier", BertForSequenceClassification, num_labels=2)
    glue(folder / "data")
    for name, words in (("train", ("cat", "sat")), ("test", ("dog", "ran"))):
        (folder / f"{name}.conllu").write_text(TREE.format(*words) * 4)
    return folder


@pytest.fixture
def model() -> headscope.AttentionModel:
    return worded(BertModel)


# Models


def task(folder: Path) -> dict[str, Any]:
    return {"task": "sst2", "data": folder / "data"}


def learned(folder: Path) -> dict[str, Any]:
    return task(folder) | {"out": folder / "never"}


Call = Callable[[Any, Path], Any]
LIVE: dict[str, Call] = {  # those that take a loaded model, or what `load` takes
    "analyze": lambda model, folder: headscope.analyze(model, TEXTS, statistics="entropy"),
    "compare_masks": lambda model, folder: headscope.compare_masks(
        model, mask="star", **task(folder)
    ),
    "encode": lambda model, folder: list(headscope.encode(model, TEXTS)),
    "evaluate": lambda model, folder: headscope.evaluate(model, **task(folder)),
    "finetune": lambda model, folder: headscope.finetune(model, epochs=1, **task(folder)),
    "fixed_patterns": lambda model, folder: headscope.fixed_patterns(model, {(0, 1): "previous"}),
    "gate": lambda model, folder: headscope.gate(model, keep=2, epochs=1, **task(folder)),
    "importance": lambda model, folder: headscope.importance(model, by="gradient", **task(folder)),
    "ablate_edges": lambda model, folder: headscope.ablate_edges(model, TEXTS[:1]),
    "learn_mask": lambda model, folder: headscope.learn_mask(
        model, sparsity=0.5, epochs=1, **task(folder)
    ),
    "look": lambda model, folder: headscope.look(model, TEXTS[0]),
    "probe": lambda model, folder: headscope.probe(
        model, folder / "train.conllu", test=folder / "test.conllu", epochs=1
    ),
    "preview_prune": lambda model, folder: headscope.preview_prune(model, "0.1"),
    "prune": lambda model, folder: headscope.prune(model, "0.1"),
    "search": lambda model, folder: headscope.search(
        model,
        remove=1,
        search="random",
        draws=1,
        **task(folder),
    ),
    "serve": lambda model, folder: headscope.serve(model, browser=False, wait=False, port=0).stop(),
    "show_model": lambda model, folder: headscope.show_model(model),
    "speed": lambda model, folder: headscope.speed(model, batch_size=1, length=8, repeats=1),
    "stream": lambda model, folder: list(
        headscope.stream(model, headscope.encode(folder / "bert", TEXTS), [])
    ),
    "token_map": lambda model, folder: headscope.token_map(model, TEXTS[0]),
}
TRAINING: dict[
    str, Call
] = {  # those that read the files of a model themselves, for every training anew
}
OF_TASKS = ("compare_masks", "evaluate", "finetune", "gate", "importance", "learn_mask", "search")


def test_every_public_function_that_takes_a_model_is_tried_here() -> None:
    functions = {name: getattr(headscope, name) for name in headscope.__all__}
    taking = {
        name
        for name, function in functions.items()
        if inspect.isfunction(function)
        and next(iter(inspect.signature(function).parameters), "") == "model"
    }
    assert taking == {*LIVE, *TRAINING, "load"}  # which takes one kind only


@pytest.mark.parametrize("convert", [str, Path, headscope.load], ids=["name", "path", "loaded"])
@pytest.mark.parametrize("name", LIVE)
def test_a_name_a_path_and_a_loaded_model_are_accepted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, convert: Callable[[str], Any]
) -> None:
    monkeypatch.chdir(folder)
    model: Any = "classifier" if name in OF_TASKS else "bert"
    if convert is headscope.load:
        model = headscope.load(
            model, model_class="AutoModelForSequenceClassification" if name in OF_TASKS else None
        )
    else:
        model = convert(model)
    LIVE[name](model, folder)


@pytest.mark.parametrize("name", [*LIVE, *TRAINING])
def test_what_is_no_model_is_refused_in_one_line(folder: Path, name: str) -> None:
    with pytest.raises(HeadscopeError) as error:
        (LIVE | TRAINING)[name](5, folder)
    assert str(error.value).startswith("model: ")
    assert not (folder / "never").exists()


def test_a_model_of_transformers_is_refused_with_how_to_wrap_it(
    model: headscope.AttentionModel,
) -> None:
    with pytest.raises(HeadscopeError) as error:
        headscope.analyze(model.model, TEXTS)  # type: ignore[arg-type]
    assert str(error.value) == (
        "model: BertModel is not a model to observe. Expected a name, a directory, a hub id or headscope.load(…). "
        "Wrap it: headscope.AttentionModel(model, tokenizer)."
    )


@pytest.mark.parametrize("name", TRAINING)
def test_a_training_that_reads_files_refuses_a_loaded_model(folder: Path, name: str) -> None:
    model = worded(BertForSequenceClassification, num_labels=2)
    with pytest.raises(HeadscopeError) as error:
        TRAINING[name](model, folder)
    assert (
        str(error.value)
        == "model: this model is loaded already. Expected its name, directory or hub id."
    )
    assert not (folder / "never").exists()


def test_models_of_a_comparison_may_be_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    study = headscope.analyze("bert", TEXTS, statistics="entropy")
    headscope.compare([study, study], models=["bert", Path("bert")], texts=TEXTS)


# Heads


@pytest.mark.parametrize(
    "heads",
    [
        "0.1",
        (0, 1),
        ("encoder", 0, 1),
        [(0, 1)],
        ["0.1"],
        [Head("encoder", 0, 1)],
        Head("encoder", 0, 1),
    ],
)
def test_a_head_may_be_written_in_every_way(model: headscope.AttentionModel, heads: Any) -> None:
    wanted = HeadSet("0.1", among=model.heads)
    assert HeadSet(heads, among=model.heads) == wanted
    batch = next(headscope.encode(model, TEXTS))
    with torch.inference_mode(), model.edited(Ablate("0.1")):
        expected = model(batch)[0]
    keys = heads if not isinstance(heads, list) else heads[0]
    mask = torch.zeros(1, 1, 1, 1)
    for edit in (Ablate(heads), Gate({keys: 0.0}), heads):
        with torch.inference_mode(), model.edited(edit):
            assert torch.equal(model(batch)[0], expected)
    for edit in (
        Uniform(heads),
        MaskScores(mask, heads),
        KnockOut("special", heads=heads),
        Fixed({keys: "previous"}),
    ):
        edit.bind(model.heads)
        assert repr(edit).endswith("encoder.0.1)") or edit._at == wanted.by_site()
    Replace({keys: torch.zeros(8)}).bind(model.heads)
    assert HeadSet([*wanted, "1.0"], among=model.heads) == HeadSet("0.1,1.0", among=model.heads)
    pruned = headscope.prune(model, heads).model
    assert [(head.layer, head.head) for head in pruned.heads] == [
        one for one in FOUR if one != (0, 1)
    ]
    assert headscope.look(model, TEXTS[0], off=heads).off == "0.1"
    assert (
        model.edit_permanently(heads).permanent_edits[0].gates.keys() == Ablate(heads).gates.keys()
    )


def test_importance_takes_tuples_and_patterns_by_name(folder: Path) -> None:
    kept = []
    for heads, patterns in (("0.1,1.0", {"0.1": "first"}), ([(0, 1), (1, 0)], {(0, 1): "first"})):
        for options in ({}, {"mode": "fixed", "patterns": patterns}):
            limited = {**task(folder), "heads": "0.1" if options else heads, "limit": 9}
            study = headscope.importance(folder / "classifier", **limited, **options)
            kept.append(
                (
                    study.record["importance"]["config"]["heads"],
                    study.record["importance"].get("patterns"),
                )
            )
    assert kept == [("0.1,1.0", None), ("0.1", {"encoder.0.1": "first"})] * 2
    assert headscope.SearchConfig(remove=1, candidates=[(0, 1), "1.*"]).candidates == "0.1,1.*"


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        (0.2, 'heads: 0.2 does not name a head. Expected {form}; or (LAYER, HEAD). Write "0.2".'),
        ([0.2], 'heads: 0.2 does not name a head. Expected {form}; or (LAYER, HEAD). Write "0.2".'),
        (3, "heads: 3 does not name a head. Expected {form}; or (LAYER, HEAD)."),
        ([3, 2], "heads: 3 does not name a head. Expected {form}; or (LAYER, HEAD)."),
        (
            (1.0, 2),
            'heads: 1.0 does not name a head. Expected {form}; or (LAYER, HEAD). Write "1.0".',
        ),
        (None, "heads: None does not name a head. Expected {form}; or (LAYER, HEAD)."),
        (
            [(0, 1, 2, 3)],
            "heads: (0, 1, 2, 3) does not name a head. Expected {form}; or (LAYER, HEAD).",
        ),
    ],
)
def test_what_names_no_head_is_refused_when_the_edit_is_made(heads: Any, message: str) -> None:
    from headscope.heads import FORM

    for make in (Ablate, Uniform, lambda heads: HeadSet(heads, among=())):
        with pytest.raises(HeadscopeError) as error:
            make(heads)
        assert str(error.value) == message.format(form=FORM)


def test_a_head_that_the_model_does_not_have_is_refused_with_what_it_has(
    model: headscope.AttentionModel,
) -> None:
    for heads in ([(0, 2)], (0, 2), "0.2"):
        for use in (
            lambda heads: headscope.prune(model, heads),
            lambda heads: model.edited(heads).__enter__(),
        ):
            with pytest.raises(HeadscopeError) as error:
                use(heads)
            assert '"0.2" is not in this model' in str(error.value)
            assert "Expected encoder layers 0 to 1 with heads 0 to 1" in str(error.value)


def test_an_edit_prints_its_heads_before_and_after_it_is_put_on(
    model: headscope.AttentionModel,
) -> None:
    edit = Ablate([(0, 1), "1.*"])
    assert repr(edit) == "Ablate(0.1, 1.*)"
    with model.edited(edit):
        assert repr(edit) == "Ablate(encoder.0.1, encoder.1.0, encoder.1.1)"
    assert repr(Uniform("0.1")) == "Uniform(0.1)"


def test_a_class_instead_of_an_edit_is_refused(model: headscope.AttentionModel) -> None:
    with pytest.raises(
        HeadscopeError,
        match=r'edited: Ablate is a class\. Expected an edit, such as Ablate\("3\.2"\)',
    ):
        model.edited(Ablate).__enter__()  # type: ignore[arg-type]


# Texts


def test_a_model_is_called_with_a_text_or_with_several_in_their_order(
    model: headscope.AttentionModel,
) -> None:
    with torch.inference_mode():
        several = model(TEXTS)[0]
        for number, text in enumerate(TEXTS):
            alone = model(text)[0][0]
            assert torch.allclose(several[number, : len(alone)], alone, atol=1e-6)
            assert model.tokenizer is not None
            plain = model.model(**model.tokenizer(text, return_tensors="pt"))[0][0]
            assert torch.allclose(alone, plain, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda model: model(None),
            "model(…): None is not an input. Expected a text, a list of texts, a Batch, or tensors by name.",
        ),
        (
            lambda model: headscope.prune(model, layers=0.5),
            'layers: "0.5" has no heads in this model. Expected encoder.0, encoder.1.',
        ),
        (
            lambda model: model(5),
            "model(…): int is not an input. Expected a text, a list of texts, a Batch, or tensors by name.",
        ),
        (
            lambda model: model(torch.tensor([[2, 5]])),
            "model(…): Tensor is not an input. Expected a text, a list of texts, a Batch, or tensors by name. "
            "Write model(input_ids=…) for token ids.",
        ),
        (lambda model: model([]), "texts: no text was given. Expected one or more."),
        (lambda model: model("the " * 99), "101 tokens. Expected at most 32."),
        (
            lambda model: headscope.analyze(model, "The cat sat."),
            "texts: one text where several were expected. Put it in a list; a file of texts is corpus=FILE.",
        ),
        (
            lambda model: headscope.analyze(model, texts=[1, 2]),
            "texts: 1 is not a text. Expected texts, or pairs of texts.",
        ),
        (
            lambda model: headscope.analyze(model, TEXTS, lens=5),
            "`lens`: 5 is not a name. Expected a name, or a list of names.",
        ),
        (
            lambda model: headscope.look(model, TEXTS[0], lens=[5]),
            "`lens`: 5 is not a name. Expected a name, or a list of names.",
        ),
        (
            lambda model: headscope.analyze(model, TEXTS, statistics=5),
            "statistics: 5 is not a name. Expected a name, or a list of names.",
        ),
        (
            lambda model: headscope.analyze(model, TEXTS, batch_size="8"),
            "`batch_size` must be a whole number, got '8'",
        ),
        (
            lambda model: headscope.analyze(model, corpus=5),
            "`corpus`: 5 is not a file. Expected a path, or a list of paths.",
        ),
        (
            lambda model: headscope.analyze(model, [("a cat", "a dog", "a mat")]),
            "texts: ('a cat', 'a dog', 'a mat') is not a text. Expected texts, or pairs of texts.",
        ),
    ],
)
def test_a_wrong_argument_is_named_in_one_line(
    model: headscope.AttentionModel, call: Callable[[headscope.AttentionModel], Any], message: str
) -> None:
    with pytest.raises(HeadscopeError) as error:
        call(model)
    assert str(error.value).startswith(message)


# Looking with heads off


def test_a_look_says_which_heads_are_off_and_by_what_attention_was_changed(
    model: headscope.AttentionModel,
) -> None:
    assert "(ablated)" not in model.look(TEXTS[0]).page()
    by_argument = model.look(TEXTS[0], off="0.1,1.*")
    with model.edited(Ablate("0.1"), Gate({"1.0": 0.0, "1.1": 0.0}), Uniform("0.0")):
        by_edit = model.look(TEXTS[0])
    assert model.edits == ()
    assert (by_argument.off, by_argument.edits) == ("0.1,1.*", ())
    assert (by_edit.off, by_edit.edits) == ("0.1,1.*", ("Uniform(encoder.0.0)",))
    for look in (by_argument, by_edit):
        page = look.page()
        assert "Heads switched off (ablated): 0.1, 1.*." in page
        assert '"off":"0.1,1.*"' in page
    assert "Attention was changed by Uniform(encoder.0.0)." in by_edit.page()


def test_a_pandas_column_is_a_list_of_texts_and_thresholds_may_be_a_mapping(
    model: headscope.AttentionModel,
) -> None:
    texts = pd.Series(["the cat sat on the mat", "the dog sat"])
    study = headscope.analyze(model, texts, statistics=["entropy"], thresholds={"sink": 0.2})
    assert study.record["data"]["used"] == 2
    assert study.record["options"]["thresholds"]["sink"] == 0.2
