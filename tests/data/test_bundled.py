"""What comes with headscope: found by name, and the bundled treebank is the sample that its script draws."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from headscope.data.bundled import TREEBANKS, source_path, treebank_path
from headscope.data.treebank import read_treebank
from headscope.errors import HeadscopeError
from headscope.study.run_record import describe_files

ROOT = Path(__file__).parents[2]
EWT = ROOT.parent / "shared" / "data" / "ud" / "en_ewt-ud-dev.conllu.gz"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    specification = importlib.util.spec_from_file_location(
        "sample_treebank", ROOT / "scripts" / "sample_treebank.py"
    )
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def block(name: str, count: int) -> str:
    """A chain of words in CoNLL-U, with a range and an empty node that are not words."""
    numbers = range(1, count + 1)
    words = "".join(f"{i}\tw{i}\t_\tX\t_\t_\t{i - 1}\tdep\t_\t_\n" for i in numbers)
    empty = "\t_" * 8
    return f"# sent_id = {name}\n1-2\tw1w2{empty}\n{words}{count}.1\telided{empty}\n"


def test_the_bundled_treebank_is_read_by_name() -> None:
    sentences = list(read_treebank("ewt-sample"))
    assert len(sentences) == len({sentence.name for sentence in sentences}) == 200
    assert {len(sentence.words) for sentence in sentences} <= set(range(8, 41))
    assert sentences[0].where.startswith("ewt-sample:")


def test_a_file_with_the_name_of_a_bundled_treebank_is_read_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ewt-sample").write_text(block("own", 3))
    assert [sentence.name for sentence in read_treebank("ewt-sample")] == ["own"]
    assert treebank_path("ewt-sample") == source_path("ewt-sample") == "ewt-sample"


def test_the_run_record_has_the_digest_of_a_bundled_file() -> None:
    digest = hashlib.sha256(TREEBANKS["ewt-sample"].read_bytes()).hexdigest()
    assert describe_files(["ewt-sample"]) == [{"path": "ewt-sample", "sha256": digest}]


def test_a_misspelt_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(HeadscopeError) as refused:
        list(read_treebank("ewt-sampel"))
    assert str(refused.value) == (
        "ewt-sampel: there is no such file here. Expected a file, or a treebank that comes with headscope: "
        'ewt-sample; did you mean "ewt-sample"?'
    )


def test_sentences_are_chosen_by_length_and_ordered_by_hash(script: ModuleType) -> None:
    lengths = {"short": 7, "a": 8, "b": 20, "c": 40, "long": 41}
    treebank = "\n".join(block(name, count) for name, count in lengths.items())
    by_hash = sorted("abc", key=lambda name: hashlib.sha1(name.encode()).hexdigest())
    expected = [f"{block(name, lengths[name])}\n" for name in by_hash]
    assert script.sample(treebank) == "".join(expected)
    assert script.sample(treebank, 2) == "".join(expected[:2])


def test_the_bundled_treebank_is_what_the_script_draws(script: ModuleType) -> None:
    if not EWT.exists():
        pytest.skip(f"the data of ../shared are not here: {EWT.name}")
    bundled = gzip.decompress(TREEBANKS["ewt-sample"].read_bytes()).decode("utf-8")
    assert script.sample(script.read(EWT)) == bundled


def test_the_bundled_data_have_their_licence_and_attribution_with_them() -> None:
    folder = TREEBANKS["ewt-sample"].parent
    attribution = (folder / "ewt-sample.md").read_text("utf-8")
    assert "CC BY-SA 4.0" in attribution
    assert "github.com/UniversalDependencies/UD_English-EWT" in attribution
