"""BERT and models with the same kind of attention."""

from headscope.model.families.family import Family, encoder, encoder_layers

BERT = Family(
    model_types=(
        "bert",
        "camembert",
        "data2vec-text",
        "electra",
        "ernie",
        "mobilebert",
        "roberta",
        "xlm-roberta",
    ),
    layers=encoder_layers,
    stack=encoder,
    counts_from_padding=("camembert", "data2vec-text", "roberta", "xlm-roberta"),
)
