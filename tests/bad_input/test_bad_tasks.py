"""Every way to ask a task for what it cannot give, and the whole message: importance, evaluate and finetune."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_result import CommandResult, Run, save_tokenizer
from transformers import BertConfig, BertForQuestionAnswering, BertForSequenceClassification

from headscope.config.names import IMPORTANCES
from headscope.data.squad import LAYOUT
from headscope.errors import choices
from headscope.model.attention_model import AttentionModel
from headscope.tasks import tasks

TEXTS = ("the cat sat.", "the mat", "a, b", "cat cat", "sat on a mat", "b a b a")
TASKS = choices("mnly", tasks())
MAP = "If the names differ on purpose, map them: --labels THEIRS=OURS."


def table(path: str, *rows: tuple[object, ...]) -> None:
    separator = "," if path.endswith(".csv") else "\t"
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("".join(separator.join(map(str, row)) + "\n" for row in rows), "utf-8")


def sst2(path: str, labels: str = "010101") -> None:
    table(path, ("sentence", "label"), *zip(TEXTS, labels, strict=True))


def squad(path: str, answer: str = "cat", start: int = 4, question: str = "who sat") -> None:
    entry = {"id": "q1", "question": question, "answers": [{"text": answer, "answer_start": start}]}
    others = [{"context": text, "qas": [entry | {"answers": []}]} for text in TEXTS[1:3]]
    paragraphs = [{"context": TEXTS[0], "qas": [entry]}, *others]
    Path(path).write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), "utf-8")


@pytest.fixture
def files(work_folder: Path) -> Path:
    """A classifier, a model that answers questions, and good data for them."""
    size = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BertConfig(**size, intermediate_size=32, max_position_embeddings=64)
    for name, kind in (
        ("classifier", BertForSequenceClassification),
        ("answerer", BertForQuestionAnswering),
    ):
        kind(config).save_pretrained(work_folder / name)
        save_tokenizer(work_folder / name)
    sst2("dev.tsv")
    squad("squad.json")
    return work_folder


@pytest.fixture
def importance(files: Path, run: Run) -> Run:
    """`importance(*words)` on the classifier and dev.tsv unless they say otherwise, into `study`."""

    def call(*words: str) -> CommandResult:
        usual = {"--task": "sst2", "--data": "dev.tsv", "--out": "study"}
        model = () if words and not words[0].startswith("--") else ("classifier",)
        rest = [
            word for name, value in usual.items() if name not in words for word in (name, value)
        ]
        return run("importance", *model, *words, *rest)

    return call


def one_line(outcome: CommandResult, message: str) -> None:
    assert (outcome.status, outcome.error) == (2, message)
    beside = ("note: ", "headscope: warning: ")  # how the model was loaded and is pooled
    notes = [line for line in outcome.err.splitlines() if line.startswith(beside)]
    assert len(outcome.rest) == len(notes) + 1
    assert not outcome.out


OPTIONS: list[tuple[tuple[str, ...], str]] = [
    (("--task", "mnly"), f'--task: "mnly" is not a task. Expected {TASKS}'),
    (("--by", "gradiant"), f'--by must be {choices("", ("all", *IMPORTANCES))}, '
     'got "gradiant". Did you mean "gradient"?'),
    (("--relevance-rules", "atnlrp"), '--relevance-rules must be attnlrp or voita, got "atnlrp". '
     'Did you mean "attnlrp"?'),
    (("--kind", "heads"), '--kind must be all, head, layer, only, pair, shared or site, got "heads". Did you mean '
     '"head"?'),
    (("--kind", "any"), '--kind must be all, head, layer, only, pair, shared or site, got "any".'),
    (("--mode", "nought"), '--mode must be fixed, mean, uniform or zero, got "nought".'),
    (("--mode", "means", "--by", "gradient"), '--mode must be fixed, mean, uniform or zero, got "means". '
     'Did you mean "mean"?'),
    (("--kind", "pair"), "--kind pair: pairs of all heads are too many. Name some: --heads 3.2,4.*."),
    (
        ("--by", "gradient", "--sequential-test", "0.05"),
        "--sequential-test requires --by ablation (or all). It has no effect otherwise.",
    ),
    (
        ("--kind", "layer,site", "--heads", "0.1"),
        "--heads requires --kind head or pair. It has no effect otherwise.",
    ),
    (("--kind", "shared"), "--kind shared: no two layers of classifier share their heads. Expected e.g. ALBERT."),
    (("--sequential-test", "0"), "--sequential-test must be above 0 and below 1, got 0."),
    (("--sequential-test", "1"), "--sequential-test must be above 0 and below 1, got 1."),
    (("--sequential-test", "nan"), "--sequential-test must be above 0 and below 1, got nan."),
    (("bert", "--task", "retrieval", "--data", "squad.json", "--sequential-test", "0.05"),
     "--sequential-test cannot be used with retrieval: its examples depend on each other. "
     "Leave --sequential-test out."),
    (("--limit", "0"), "--limit must be at least 1, got 0."),
    (("--batch-size", "0"), "--batch-size must be at least 1, got 0."),
    (("--max-length", "65"), "--max-length: 65 tokens are more than classifier can read. Expected at most 64."),
    (("--columns", "label"), '--columns must be EXPECTED=YOURS,EXPECTED=YOURS…, got "label".'),
    (("--labels", "a=b,=c"), '--labels must be YOURS=EXPECTED,YOURS=EXPECTED…, got "=c".'),
    (("--data", "nowhere"), "nowhere: no such file or directory. Expected a file, or a directory with train, dev and "
     "test files."),
    (("--data", "bert", "--split", "devel"), '--split: "devel" is not a split. Expected dev, '
     'dev:half-a, dev:half-b, test or train; '
     'did you mean "dev"?'),
    (("--columns", "sentence=text"), 'dev.tsv:2: no column "text" among label or sentence. '
     "Name the column that holds it: --columns sentence=NAME."),
]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message"), OPTIONS, ids=[" ".join(words) for words, _ in OPTIONS]
)
def test_a_bad_option_is_refused_as_typed(
    importance: Run, words: tuple[str, ...], message: str
) -> None:
    one_line(importance(*words), message)


def test_a_head_that_is_not_there_is_refused(importance: Run) -> None:
    one_line(
        importance("--kind", "pair", "--heads", "0.1,0.9"),
        '--heads: "0.9" is not in this model. Expected encoder layers 0 to 0 with heads 0 to 1.',
    )


# Tables


def test_an_unknown_label_is_named_by_its_line(importance: Run) -> None:
    sst2("dev.tsv", "0101x1")
    one_line(importance(), f'dev.tsv:6: label "x" is unknown. Expected 0 or 1. {MAP}')


def test_a_label_that_the_model_does_not_know_is_named_by_its_line(
    importance: Run, files: Path
) -> None:
    config = json.loads((files / "classifier/config.json").read_text("utf-8"))
    config |= {"label2id": {"cat": 0, "dog": 1}, "id2label": {"0": "cat", "1": "dog"}}
    (files / "classifier/config.json").write_text(json.dumps(config), "utf-8")
    table("own.tsv", ("text", "label"), ("the cat", "cat"), ("a mat", "mat"))
    output = importance("--task", "classification", "--data", "own.tsv")
    one_line(
        output,
        f'own.tsv:3: label "mat" is unknown to the model. Expected cat or dog; did you mean "cat"? {MAP}',
    )


def test_more_labels_than_the_model_has_classes(importance: Run) -> None:
    table("own.tsv", ("text", "label"), ("the cat", "x"), ("a mat", "y"), ("b", "z"))
    one_line(
        importance("--task", "classification", "--data", "own.tsv"),
        "classifier: a model with unnamed classes must have as many as the 3 labels of the data (x, y, z), got 2.",
    )


def test_one_class_only_is_refused(importance: Run) -> None:
    sst2("dev.tsv", "000000")
    one_line(
        importance(), 'dev.tsv: there must be two classes or more, got "0" for all 6 examples.'
    )


def test_a_missing_column_is_named_with_those_that_are_there(importance: Run) -> None:
    table("dev.tsv", ("words", "label"), ("the cat", 0), ("a mat", 1))
    one_line(
        importance(),
        'dev.tsv:2: no column "sentence" among label or words. Name the column that holds it: --columns sentence=NAME.',
    )


def test_an_empty_cell_is_named(importance: Run) -> None:
    table("dev.tsv", ("sentence", "label"), ("the cat", 0), ("", 1))
    one_line(importance(), 'dev.tsv:3: column "sentence" is empty. Expected a text.')


@pytest.mark.parametrize("text", ["", "sentence\tlabel\n", "\n\n"])
def test_an_empty_split_is_refused(importance: Run, text: str) -> None:
    Path("dev.tsv").write_text(text, "utf-8")
    one_line(importance(), "dev.tsv: no example in it. Expected one or more.")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "t.txt",
            "The cat sat.\n",
            "t.txt: read as a table with the header 'The cat sat.' and no rows. Expected columns sentence, label.",
        ),
        (
            "t.csv",
            "The cat, sat.\n",
            "t.csv: read as a table with the header 'The cat', ' sat.' and no rows. Expected columns sentence, label.",
        ),
        (
            "t.txt",
            "The cat sat.\nThe mat.\n",
            't.txt:2: no column "sentence" among The cat sat. Name the column that holds it: --columns sentence=NAME.',
        ),
    ],
    ids=["one line", "csv", "two lines"],
)
def test_a_plain_text_in_the_place_of_a_table_is_named(
    importance: Run, name: str, text: str, message: str
) -> None:
    Path(name).write_text(text, "utf-8")
    one_line(importance("--data", name), message)


def test_a_directory_without_a_dev_file_is_refused(importance: Run) -> None:
    sst2("glue/train.tsv")
    one_line(
        importance("--data", "glue"),
        "glue: no file for dev here, only train.tsv. Expected dev.tsv, say.",
    )


def test_a_quote_that_does_not_close_is_named_by_its_line(importance: Run) -> None:
    table("dev.csv", ("sentence", "label"), ("the cat", 0), ('"a mat', 1), ("b", 0))
    one_line(
        importance("--data", "dev.csv"),
        "dev.csv:3: not a csv line (unexpected end of data). Expected quotes that close.",
    )


@pytest.mark.parametrize("score", ["6", "high", "nan", "-1"])
def test_a_score_that_is_none_is_named(importance: Run, score: str) -> None:
    table(
        "sts.tsv", ("sentence1", "sentence2", "score"), ("a", "b", 1), ("the cat", "a cat", score)
    )
    one_line(
        importance("bert", "--task", "stsb", "--data", "sts.tsv"),
        f'sts.tsv:3: the score must be a number from 0 to 5, got "{score}".',
    )


def test_scores_that_are_all_one_are_refused(importance: Run) -> None:
    table(
        "sts.tsv", ("sentence1", "sentence2", "score"), ("a", "b", 2.5), ("the cat", "a cat", 2.5)
    )
    one_line(
        importance("bert", "--task", "stsb", "--data", "sts.tsv"),
        "scores must differ for a correlation, got 2.5 for all 2 examples.",
    )


# Questions and translations


def test_a_broken_squad_file_is_named_by_its_place(importance: Run) -> None:
    Path("squad.json").write_text('{"data": [\n{"paragraphs": }]}', "utf-8")
    one_line(
        importance("answerer", "--task", "squad", "--data", "squad.json"),
        f"squad.json:2:16: not JSON: Expecting value. Expected {LAYOUT}.",
    )


def test_an_answer_that_does_not_stand_where_it_should_is_named(importance: Run) -> None:
    squad("squad.json", start=3)
    one_line(
        importance("answerer", "--task", "squad", "--data", "squad.json"),
        'squad.json: question q1: the answer "cat" is not at character 3 of its paragraph. '
        "Expected answer_start to count characters from 0.",
    )


def test_a_question_that_fills_the_window_is_refused(importance: Run) -> None:
    squad("squad.json", question="a " * 61)
    one_line(
        importance("answerer", "--task", "squad", "--data", "squad.json"),
        "squad.json: question q1: the question must fit into a window of 64 tokens with its paragraph, got 61 tokens.",
    )


def test_a_window_longer_than_the_model_reads_is_refused(importance: Run) -> None:
    one_line(
        importance("answerer", "--task", "squad", "--data", "squad.json", "--max-length", "65"),
        "--max-length: 65 tokens are more than answerer can read. Expected at most 64.",
    )


def test_one_paragraph_is_nothing_to_choose_from(importance: Run) -> None:
    content = json.loads(Path("squad.json").read_text("utf-8"))
    content["data"][0]["paragraphs"] = content["data"][0]["paragraphs"][:1]
    Path("squad.json").write_text(json.dumps(content), "utf-8")
    one_line(
        importance("bert", "--task", "retrieval", "--data", "squad.json"),
        "questions must be about two paragraphs or more, got one.",
    )


def test_parallel_files_of_different_length_are_refused(importance: Run) -> None:
    Path("a.en").write_text("the cat\na mat\n", "utf-8")
    Path("a.fr").write_text("the cat\n", "utf-8")
    one_line(
        importance("--task", "translation", "--data", "a.en,a.fr"),
        "a.en,a.fr: both files must have as many lines, got 2 and 1.",
    )


def test_parallel_files_without_a_text_are_refused(importance: Run) -> None:
    for name in ("a.en", "a.fr"):
        Path(name).write_text("\n\n", "utf-8")
    one_line(
        importance("--task", "translation", "--data", "a.en,a.fr"),
        "a.en,a.fr: no example in it. Expected one or more.",
    )


def test_a_choice_that_is_none_is_named(importance: Run) -> None:
    names = ("sent1", "sent2", "ending0", "ending1", "label")
    table("swag.tsv", names, ("the cat", "a", "sat", "mat", 1), ("the cat", "a", "sat", "mat", 2))
    one_line(
        importance("bert", "--task", "swag", "--data", "swag.tsv"),
        'swag.tsv:3: the right choice must be a number from 0 to 1, got "2".',
    )


# Models


@pytest.mark.parametrize("verb", ["importance", "evaluate"])
def test_a_classifier_that_was_never_trained_is_refused(files: Path, run: Run, verb: str) -> None:
    out = ("--out", "study") if verb == "importance" else ()
    output = run(verb, "bert", "--task", "sst2", "--data", "dev.tsv", *out)
    assert (output.status, output.error) == (
        2,
        "bert: this model's head was never trained (classifier.bias is not in its files). "
        "Train it first: headscope finetune MODEL --task sst2 --data DATA --out DIR.",
    )
    assert not output.out


def test_a_model_that_cannot_do_the_task_is_refused(files: Path, run: Run) -> None:
    one_line(
        run("evaluate", "bert", "--task", "translation", "--data", "dev.tsv"),
        "bert/config.json: no AutoModelForSeq2SeqLM can be built from it (Unrecognized configuration class <class "
        "'transformers.models.bert.configuration_bert.BertConfig'> for this kind of AutoModel: AutoModelForSeq2SeqLM). "
        "Expected the configuration the weights were saved with.",
    )


def test_a_metric_that_is_undefined_on_the_sample_is_refused(importance: Run, files: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(files / "classifier/model.safetensors")
    weights["classifier.weight"].zero_()
    weights["classifier.bias"].copy_(weights["classifier.bias"].new_tensor([0.0, 1.0]))
    save_file(weights, files / "classifier/model.safetensors", metadata={"format": "pt"})
    one_line(
        importance("--task", "cola"),
        "--task cola: matthews is undefined on these 6 examples: the model gives one answer to all of them. "
        "Take more examples, or a model that was trained for longer.",
    )


@pytest.mark.parametrize("size", [4, 1])
@pytest.mark.parametrize(
    "cause", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_out_of_memory_names_the_batch_size(
    importance: Run, monkeypatch: pytest.MonkeyPatch, size: int, cause: Exception
) -> None:
    def full(self: AttentionModel, *args: object, **inputs: object) -> object:
        raise cause

    monkeypatch.setattr(AttentionModel, "__call__", full)
    smaller = "--batch-size 2, or " if size == 4 else ""
    counted = "4 sequences" if size == 4 else "1 sequence"
    monkeypatch.setattr("headscope.ablation.importance.sites_in_use", lambda model, *_: model.sites)
    one_line(
        importance("--batch-size", str(size)),
        f"--batch-size: out of memory with {counted} at a time. Try {smaller}a smaller --max-length.",
    )


# Training


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--data", "dev.tsv"), "dev.tsv: one file cannot be both train and dev. Expected a directory with a train "
         "file and a dev file."),
        (("--data", "glue"), "glue: no file for dev here, only train.tsv. Expected dev.tsv, say."),
        (("--data", "good", "--epochs", "0"), "--epochs must be at least 1, got 0."),
        (("--data", "good", "--limit", "0"), "--limit must be at least 1, got 0."),
        (("--data", "one"), 'one/train.tsv: there must be two classes or more, got "0" for all 6 examples.'),
    ],
)  # fmt: skip
def test_training_is_refused_before_anything_is_written(
    files: Path, run: Run, words: tuple[str, ...], message: str
) -> None:
    sst2("glue/train.tsv")
    for folder, labels in (("good", "010101"), ("one", "000000")):
        sst2(f"{folder}/train.tsv", labels)
        sst2(f"{folder}/dev.tsv")
    one_line(run("finetune", "bert", *words, "--task", "sst2", "--out", "made"), message)
