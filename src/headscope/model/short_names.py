"""Old short names of models on the hub: `bert-base-uncased` is `google-bert/bert-base-uncased` today.

Only models of families that headscope can read.
"""

from __future__ import annotations

_OWNERS = {
    "google-bert": (
        "bert-base-uncased",
        "bert-base-cased",
        "bert-large-uncased",
        "bert-large-cased",
        "bert-base-multilingual-uncased",
        "bert-base-multilingual-cased",
        "bert-base-chinese",
        "bert-base-german-cased",
        "bert-base-german-dbmdz-cased",
        "bert-base-german-dbmdz-uncased",
        "bert-large-uncased-whole-word-masking",
        "bert-large-cased-whole-word-masking",
        "bert-large-uncased-whole-word-masking-finetuned-squad",
        "bert-large-cased-whole-word-masking-finetuned-squad",
        "bert-base-cased-finetuned-mrpc",
    ),
    "distilbert": (
        "distilbert-base-uncased",
        "distilbert-base-cased",
        "distilbert-base-german-cased",
        "distilbert-base-multilingual-cased",
        "distilbert-base-uncased-distilled-squad",
        "distilbert-base-cased-distilled-squad",
        "distilbert-base-uncased-finetuned-sst-2-english",
        "distilroberta-base",
        "distilgpt2",
    ),
    "FacebookAI": (
        "roberta-base",
        "roberta-large",
        "roberta-large-mnli",
        "xlm-roberta-base",
        "xlm-roberta-large",
        "xlm-roberta-large-finetuned-conll02-dutch",
        "xlm-roberta-large-finetuned-conll02-spanish",
        "xlm-roberta-large-finetuned-conll03-english",
        "xlm-roberta-large-finetuned-conll03-german",
    ),
    "openai-community": (
        "gpt2",
        "gpt2-medium",
        "gpt2-large",
        "gpt2-xl",
        "roberta-base-openai-detector",
        "roberta-large-openai-detector",
    ),
    "albert": tuple(
        f"albert-{size}-v{version}"
        for size in ("base", "large", "xlarge", "xxlarge")
        for version in (1, 2)
    ),
    "google-t5": ("t5-small", "t5-base", "t5-large", "t5-3b", "t5-11b"),
    "xlnet": ("xlnet-base-cased", "xlnet-large-cased"),
    "almanach": ("camembert-base",),
}
HUB_IDS = {name: f"{owner}/{name}" for owner, names in _OWNERS.items() for name in names}
