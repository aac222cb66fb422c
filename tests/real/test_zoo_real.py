"""Are the fetched models the real ones? What each was seen to do when it was pinned, it must do again."""

from __future__ import annotations

import json
import re

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

from headscope.model import zoo

pytestmark = pytest.mark.real

SMALL = ["minilm", "rxnmapper", "rxnfp", "rxnfp-ft", "rxnfp-classes"]
LARGE = ["opus-mt-en-fr", "opus-mt-fr-en", "mpnet", "smollm2"]
GUITAR = "A man is playing a guitar."
SAME = "Someone is performing music on a guitar."
OTHER = "The stock market fell sharply today."
REACTION = "CC(C)S.CN(C)C=O.Fc1cccnc1F.O=C([O-])[O-].[K+].[K+]>>CC(C)Sc1ncccc1F"
PUBLISHED_RULE = (
    r"(\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>>?|\*"
    r"|\$|\%[0-9]{2}|[0-9])"
)


def load(auto_class, path):
    """The model by its Auto class, in eval mode, with no weight left random."""
    model, report = auto_class.from_pretrained(
        path, output_loading_info=True, trust_remote_code=False, local_files_only=True
    )
    assert not report["missing_keys"]
    return model.eval()


def sentence_cosines(path, sentences):
    """Cosine of the first sentence with each other one; mean over real tokens."""
    tokenizer, model = AutoTokenizer.from_pretrained(path), load(AutoModel, path)
    batch = tokenizer(sentences, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = model(**batch).last_hidden_state
    real = batch["attention_mask"].unsqueeze(-1)
    means = (states * real).sum(1) / real.sum(1)
    return torch.cosine_similarity(means[:1], means[1:]).tolist()


def restored(path):
    """How many of the reaction's tokens come back when each is masked in turn, and how many there are."""
    tokenizer, model = AutoTokenizer.from_pretrained(path), load(AutoModelForMaskedLM, path)
    ids = tokenizer(REACTION, return_tensors="pt").input_ids[0]
    inside = torch.arange(1, len(ids) - 1)
    masked = ids.repeat(len(inside), 1)
    masked[torch.arange(len(inside)), inside] = tokenizer.mask_token_id
    with torch.no_grad():
        guesses = model(input_ids=masked).logits.argmax(-1)
    right = guesses[torch.arange(len(inside)), inside] == ids[inside]
    return int(right.sum()), len(inside)


def translation(path, text):
    tokenizer, model = AutoTokenizer.from_pretrained(path), load(AutoModelForSeq2SeqLM, path)
    with torch.no_grad():
        ids = model.generate(**tokenizer(text, return_tensors="pt"))
    return tokenizer.decode(ids[0], skip_special_tokens=True)


@pytest.mark.parametrize("name", SMALL + LARGE)
def test_a_cached_model_is_whole_and_free_of_pickles(zoo_model, name):
    path = zoo_model(name, large=name in LARGE)
    if not (path / "headscope.json").is_file():
        pytest.skip(f"{name} comes from HEADSCOPE_MODELS, which headscope did not make")
    zoo.verify(name)
    names = {file.name for file in path.rglob("*") if file.is_file()}
    assert "model.safetensors" in names
    assert not {name for name in names if re.search(r"\.(bin|pt|pkl|pickle|gguf)$", name)}


@pytest.mark.parametrize("name", SMALL + LARGE)
def test_the_shape_that_is_listed_is_the_models(zoo_model, name):
    config = AutoConfig.from_pretrained(zoo_model(name, large=name in LARGE))
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    assert zoo.MODELS[name].shape.startswith(f"{layers} x {heads} heads")


@pytest.mark.parametrize("name", SMALL + LARGE)
def test_the_tokenizer_knows_the_whole_vocabulary(zoo_model, name):
    path = zoo_model(name, large=name in LARGE)
    assert len(AutoTokenizer.from_pretrained(path)) == AutoConfig.from_pretrained(path).vocab_size


def test_minilm_tells_the_same_from_the_unrelated(zoo_model):
    cosines = sentence_cosines(zoo_model("minilm"), [GUITAR, SAME, OTHER])
    assert cosines == pytest.approx([0.788, -0.054], abs=1e-3)


def test_mpnet_tells_the_same_from_the_unrelated_and_claims_no_masked_language_head(zoo_model):
    path = zoo_model("mpnet", large=True)
    assert sentence_cosines(path, [GUITAR, SAME, OTHER]) == pytest.approx([0.809, -0.019], abs=1e-3)
    assert json.loads((path / "config.json").read_text())["architectures"] == ["MPNetModel"]


def test_smollm2_continues_text_as_its_package_does(zoo_model):
    path = zoo_model("smollm2", large=True)
    tokenizer, model = AutoTokenizer.from_pretrained(path), load(AutoModelForCausalLM, path)
    assert tokenizer.model_max_length == model.config.max_position_embeddings == 8192
    for text, continued in (
        ("The capital of France is", " Paris."),
        ("Once upon a time, there was a", " small town nestled in the heart of a bustling city."),
    ):
        ids = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            written = model.generate(**ids, max_new_tokens=12, do_sample=False)
        assert tokenizer.decode(written[0]).startswith(text + continued)


@pytest.mark.parametrize(("name", "right"), [("rxnmapper", 53), ("rxnfp", 44)])
def test_masked_tokens_of_a_reaction_are_restored_as_often_as_published(zoo_model, name, right):
    assert restored(zoo_model(name)) == (right, 54)


@pytest.mark.parametrize("name", ["rxnmapper", "rxnfp", "rxnfp-ft", "rxnfp-classes"])
def test_the_smiles_tokenizer_cuts_as_the_packages_rule_does(zoo_model, name):
    tokenizer = AutoTokenizer.from_pretrained(zoo_model(name))
    assert tokenizer("C[MASK]O").input_ids == [12, 16, 14, 19, 13]
    assert tokenizer.tokenize(REACTION) == re.findall(PUBLISHED_RULE, REACTION)
    assert tokenizer.decode(tokenizer("CO", "N").input_ids) == "[CLS] C O [SEP] N [SEP]"


def test_head_10_5_of_rxnmapper_sends_product_atoms_to_their_reactant_atoms(zoo_model):
    path = zoo_model("rxnmapper")
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModel.from_pretrained(path, attn_implementation="eager").eval()
    batch = tokenizer(REACTION, return_tensors="pt")
    tokens = tokenizer.convert_ids_to_tokens(batch.input_ids[0])
    arrow = tokens.index(">>")
    is_atom = [
        bool(re.match(r"\[.*[A-Za-z].*]|[A-Za-z]", t)) and t not in ("[CLS]", "[SEP]")
        for t in tokens
    ]
    reactant = [i for i in range(arrow) if is_atom[i]]
    product = [i for i in range(arrow, len(tokens)) if is_atom[i]]
    with torch.no_grad():
        weights = model(**batch, output_attentions=True).attentions[10][0, 5]
    mapped = [reactant[int(weights[i, reactant].argmax())] for i in product]
    assert len(product) == 11
    # The thiol (atoms 0 to 3) keeps its order; the ring comes from the pyridine, never from solvent or base.
    assert sorted(reactant.index(i) for i in mapped[:4]) == [0, 1, 2, 3]
    assert [tokens[i] for i in mapped] == [tokens[i] for i in product]
    ring = tokens.index("c")
    assert all(ring - 1 <= i <= ring + 10 for i in mapped[4:])


def test_the_classifier_is_sure_of_the_reactions_class(zoo_model):
    path = zoo_model("rxnfp-classes")
    model = load(AutoModelForSequenceClassification, path)
    with torch.no_grad():
        logits = model(**AutoTokenizer.from_pretrained(path)(REACTION, return_tensors="pt")).logits[
            0
        ]
    assert logits.shape == (50,)
    assert int(logits.argmax()) == 13
    assert float(logits.softmax(0)[13]) == pytest.approx(0.99997, abs=1e-5)


def test_the_fine_tuned_encoder_sees_that_the_base_hardly_matters(zoo_model):
    path = zoo_model("rxnfp-ft")
    tokenizer, model = AutoTokenizer.from_pretrained(path), load(AutoModel, path)
    without_base = REACTION.replace(".O=C([O-])[O-].[K+].[K+]", "")
    esterification = "CC(=O)O.CCO>>CC(=O)OCC"
    with torch.no_grad():
        first, same, other = (
            model(**tokenizer(text, return_tensors="pt")).last_hidden_state[:, 0]
            for text in (REACTION, without_base, esterification)
        )
    assert float(torch.cosine_similarity(first, same)) == pytest.approx(0.996, abs=2e-3)
    assert float(torch.cosine_similarity(first, other)) < 0.1


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "opus-mt-en-fr",
            "The cat sat on the mat and looked at the dog.",
            "Le chat s'assit sur le tapis et regarda le chien.",
        ),
        ("opus-mt-fr-en", "Le chat dort sur le tapis.", "The cat sleeps on the carpet."),
    ],
)
def test_the_translators_translate(zoo_model, name, text, expected):
    assert translation(zoo_model(name, large=True), text) == expected
