"""The scripts under examples/ build the relations that they say they do."""

from __future__ import annotations

import ast
import importlib
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from transformers import BertForMaskedLM, BertModel

from headscope.api.analyze import analyze
from headscope.study.study import Study
from headscope.tables import Row, to_frame
from worded import worded

TREE = "# text = Il voit du blé\n" + "".join(
    "\t".join([*row, "_", "_"]) + "\n"
    for row in (
        ("1", "Il", "_", "PRON", "_", "_", "2", "nsubj"),
        ("2", "voit", "_", "VERB", "_", "_", "0", "root"),
        ("3-4", "du", "_", "_", "_", "_", "_", "_"),
        ("3", "de", "_", "ADP", "_", "_", "5", "case"),
        ("4", "le", "_", "DET", "_", "_", "5", "det"),
        ("5", "blé", "_", "NOUN", "_", "_", "2", "obj"),
    )
)


def script(name: str) -> ModuleType:
    path = Path(__file__).parent.parent / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def treebank(tmp_path: Path) -> Path:
    path = tmp_path / "trees.conllu"
    path.write_text(TREE + "\n", "utf-8")
    return path


def test_a_relation_of_the_decoder_is_parted_by_where_the_governor_stands(treebank: Path) -> None:
    example = script("decoder_relations")
    [parsed] = example.read_treebank(treebank)
    sentence = example.sentence_of(parsed, "He sees wheat .")
    assert sentence.pairs == {
        "nsubj, governor after": [(0, 1)],
        "case, governor after": [(2, 4)],
        "det, governor after": [(3, 4)],
        "obj, governor before": [(4, 1)],
    }
    assert (sentence.words, sentence.target) == (("He", "sees", "wheat", "."), parsed.words)
    assert sentence.between == "target"


def test_the_written_sentence_is_what_is_translated(treebank: Path) -> None:
    assert list(script("decoder_relations").read_written(treebank)) == ["Il voit du blé"]


def test_a_form_has_the_tag_it_has_most_often_whatever_its_case(tmp_path: Path) -> None:
    path = tmp_path / "trees.conllu"
    as_verb, in_capitals = (
        TREE.replace("blé\t_\tNOUN", "blé\t_\tVERB"),
        TREE.replace("\tblé\t", "\tBLÉ\t"),
    )
    path.write_text(f"{as_verb}\n{in_capitals}\n{in_capitals}\n", "utf-8")
    assert script("word_alignment").usual_tags([path])["blé"] == "NOUN"


def test_a_link_is_one_of_nouns_only_if_both_its_words_are(tmp_path: Path) -> None:
    path = tmp_path / "links.tsv"
    path.write_text(
        "en\tfr\tsure\tpossible\nthe Run begins\tcourir commence la\t0-2 1-0 2-1\t1-1\n", "utf-8"
    )
    english = {"the": "DET", "run": "NOUN", "begins": "NOUN"}
    french = {"courir": "NOUN", "commence": "VERB", "la": "DET"}
    [sentence] = script("word_alignment").sentences_of(path, english, french)
    assert sentence.pairs == {
        "aligned": [(2, 0), (0, 1), (1, 2)],
        "aligned nouns": [(0, 1)],
        "aligned others": [(2, 0), (1, 2)],
        "aligned others of one tag": [(2, 0)],
    }
    assert sentence.between == "across"


def test_two_words_without_a_tag_are_not_of_one_tag(tmp_path: Path) -> None:
    path = tmp_path / "links.tsv"
    path.write_text("en\tfr\tsure\tpossible\nParis\tParis\t0-0\t\n", "utf-8")
    [sentence] = script("word_alignment").sentences_of(path, {}, {})
    assert sentence.pairs["aligned others of one tag"] == []


def test_correlations_of_heads_are_with_removal_within_layers_and_with_confidence() -> None:
    example = script("head_correlations")
    exact = [0.1, 0.2, 0.3, 1.0, 2.0, 3.0]
    first = {
        "ablation-loss": exact,
        "relevance": [3.0, 2.0, 1.0, 9.0, 8.0, 7.0],
        "confidence": exact[::-1],
    }
    second = {"relevance": exact}
    studies = []
    for rules, columns in (("voita", first), ("attnlrp", second)):
        rows = [
            Row("encoder", number // 3, number % 3, name, value, value, value, 9)
            for name, values in columns.items()
            for number, value in enumerate(values)
        ]
        rows.append(Row("decoder", 0, 0, "relevance", 99.0, 99.0, 99.0, 9))
        studies.append(Study(to_frame(rows), record={"importance": {"rules": rules}}))
    result = example.correlations(example.combine_importances(studies, "encoder"))
    assert list(result.index) == ["relevance, voita", "confidence", "relevance, attnlrp"]
    across = 1 - 6 * 16 / (6 * 35)  # ranks 3 2 1 6 5 4 against 1 to 6
    assert result.loc["relevance, voita", "change of loss"] == pytest.approx(across)
    assert result.loc["relevance, voita", "within a layer"] == pytest.approx(-1)
    assert result.loc["relevance, voita", "confidence"] == pytest.approx(-across)
    assert result.loc[
        "relevance, attnlrp", ["change of loss", "low", "high"]
    ].tolist() == pytest.approx([1, 1, 1])
    assert result.loc["relevance, voita", "low"] < across < result.loc["relevance, voita", "high"]


def test_effective_attention_by_length_is_the_raw_one_up_to_the_width_of_heads(
    tmp_path: Path,
) -> None:
    example = script("effective_by_length")
    model = worded(BertModel, num_attention_heads=2)  # eight numbers a head
    words = [
        " ".join(("the", "old", "cat", "saw", "a", "dog", ".")[(i * k) % 7] for i in range(9))
        for k in range(1, 9)
    ]
    windows = example.windows_of(words, 16, 3)
    assert [len(window.split()) for window in windows] == [16] * 3
    assert windows[1].split()[:2] == words[1].split()[7:], "one behind the other"
    table = example.by_length(model, windows, (6, 8, 16))
    assert table.loc[[6, 8], "correlation"].tolist() == pytest.approx([1, 1])
    assert table.loc[16, "low"] < table.loc[16, "correlation"] < table.loc[16, "high"] < 1.2
    assert table.loc[16, "correlation"] < 0.999
    assert table.loc[8, "first token, raw"] == pytest.approx(table.loc[8, "first token, effective"])
    study = analyze(model, texts=windows, max_length=16, lens="effective,effective-simplex")
    heads = study.heads.groupby("statistic")["value"].mean()
    assert table.loc[16, "correlation"] == pytest.approx(heads["raw-correlation@effective"])
    assert table.loc[16, "first token, effective"] == pytest.approx(heads["cls@effective"])
    assert example.width_of(study) == {"encoder": 8}
    example.draw(table, {"encoder": 8}, tmp_path / "lengths.svg")
    assert "heads are 8 wide" in (tmp_path / "lengths.svg").read_text("utf-8").replace("<!-- ", "")


def test_a_corpus_that_is_too_short_for_its_windows_is_refused() -> None:
    with pytest.raises(SystemExit, match="too short for 2 windows of 3 words"):
        script("effective_by_length").windows_of(["a b", "c d e"], 3, 2)


def test_models_are_compared_example_by_example(tmp_path: Path) -> None:
    paired = script("paired_models")
    data = tmp_path / "texts.txt"
    data.write_text("the cat sat on the mat\nthe cat saw the mat\nthe mat\n", "utf-8")
    saved = worded(BertForMaskedLM).save(tmp_path / "small", form="small")
    plain, again, masked = (
        paired.losses_of(f"{saved}{mask}", "masked", str(data), "dev", None, None)
        for mask in ("", "", "=no-diagonal")
    )
    assert paired.difference(plain, again) == (0.0, 0.0, 0.0)
    mean, low, high = paired.difference(plain, masked)
    assert mean == pytest.approx(float(masked.mean() - plain.mean()))
    assert low < mean < high


ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "file",
    sorted(
        path.relative_to(ROOT).as_posix()
        for folder in ("benchmarks", "examples", "scripts")
        for path in (ROOT / folder).glob("*.py")
    ),
)
def test_scripts_import_names_that_exist(file: str) -> None:
    """Imports inside functions too, which running a script's `--help` would not reach."""
    missing = []
    for node in ast.walk(ast.parse((ROOT / file).read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headscope"):
            module = importlib.import_module(str(node.module))
            for alias in node.names:
                is_module = (
                    importlib.util.find_spec(f"{node.module}.{alias.name}")
                    if hasattr(module, "__path__")
                    else None
                )
                if not hasattr(module, alias.name) and is_module is None:
                    missing.append(f"{file}:{node.lineno} {node.module}.{alias.name}")
    assert missing == []
