"""A cut model on disk, in three forms.

small  the weights that are left, and cut.json: loaded by `headscope.load`
plain  full shapes, zeros where heads were: loaded by transformers as it is
onnx   a graph for onnxruntime, compared with torch before it is kept
"""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headscope.atomic_dir import atomic_directory
from headscope.errors import HeadscopeError, choices, note, reason
from headscope.model.attention_model import AttentionModel
from headscope.model.fixed_attention import get_fixed_heads
from headscope.model.load import silence_transformers
from headscope.model.manifest import NAME, WEIGHTS, Manifest, write_manifest
from headscope.model.model_card import format_card
from headscope.model.reading_files import describe_left_out, write_reading
from headscope.model.sample_inputs import sample_inputs
from headscope.model.surgery import expand, origin_of
from headscope.model.tokenizer import write_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FORMS = ("small", "plain", "onnx")
ONNX_TOLERANCE = 1e-4  # of the largest output


def save(
    model: AttentionModel,
    out: str | Path,
    *,
    form: str = "small",
    chosen: dict[str, Any] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a model that others can load; whole or not at all.

    form    small, plain or onnx
    chosen  how its heads were chosen, for the manifest and the card
    """
    check_form(form)
    check_form_fits(model, form)
    with atomic_directory(out, overwrite=overwrite, record=NAME) as folder:
        write_model(model, folder, form=form, chosen=chosen)
    return Path(out)


def check_form(form: str) -> None:
    if form not in FORMS:
        raise HeadscopeError(f'"{form}" is no form', where="`form`", expected=choices(form, FORMS))
    if form == "onnx":
        _runtime()  # refuses at once what would fail at the end


def check_form_fits(model: AttentionModel, form: str) -> None:
    """Refuse a form that cannot hold this model, and a model with modules that cannot be written next to it."""
    model.reading.check(model.name)
    if form != "small" and model.fixed:
        raise HeadscopeError(
            f"{len(model.fixed)} heads follow fixed patterns, which nobody else computes",
            where=f'`form="{form}"`',
            expected="small",
        )


def write_model(
    model: AttentionModel,
    folder: Path,
    *,
    form: str = "small",
    chosen: dict[str, Any] | None = None,
) -> None:
    """The files of a model in a folder that is there. One that was not cut is written as transformers does."""
    check_form_fits(model, form)
    chosen = dict(chosen or {})
    if model.cut is not None and model.cut.history:
        chosen["history"] = list(model.cut.history)
    if model.tokenizer is not None:
        write_tokenizer(model.tokenizer, folder)
    width = getattr(model.model.config, "hidden_size", None)
    write_reading(model.reading, folder, where=model.name, width=width)
    if (left_out := describe_left_out(model.reading)) is not None:
        note(f"{model.name}: {left_out}")
    if form == "onnx":
        with silence_transformers():
            model.model.config.save_pretrained(folder)
            _write_onnx(model, folder)
    elif form == "plain" or model.cut is None:
        with silence_transformers():
            (expand(model) if model.cut is not None else model.model).save_pretrained(folder)
    else:
        _write_small(model, folder)
    if model.cut is not None:
        write_manifest(make_manifest(model, chosen), folder, form)
        (folder / "README.md").write_text(format_card(model, form, chosen), "utf-8")


def make_manifest(model: AttentionModel, chosen: dict[str, Any]) -> Manifest:
    origin = origin_of(model)
    lost = {
        name: sites[0].numbers or ()
        for name, sites in model.attention_modules.items()
        if len(sites[0].numbers or ()) < origin.widths[sites[0]]
    }
    silent = dict.fromkeys(model.cut.silent if model.cut is not None else (), ())
    return Manifest(
        type(model.model).__name__,
        origin,
        {**lost, **silent},
        {site: site.numbers or () for site in model.sites},
        chosen,
        {
            name: fixed
            for name in model.attention_modules
            if (fixed := get_fixed_heads(model.model.get_submodule(name))) is not None
        },
        model.reading.left_out,
    )


def _write_small(model: AttentionModel, folder: Path) -> None:
    from safetensors.torch import save_file

    with silence_transformers():
        model.model.config.architectures = [type(model.model).__name__]
        model.model.config.save_pretrained(folder)
        if model.model.can_generate() and model.model.generation_config is not None:
            model.model.generation_config.save_pretrained(folder)
    save_file(_own_tensors(model.model), folder / WEIGHTS, metadata={"format": "pt"})


def _own_tensors(model: PreTrainedModel) -> dict[str, Tensor]:
    """Every tensor once: of those that share memory the first, as loading ties the others to it again."""
    found: dict[str, Tensor] = {}
    seen: set[tuple[int, tuple[int, ...]]] = set()
    for name, tensor in model.state_dict().items():
        place = tensor.data_ptr(), tuple(tensor.shape)
        if tensor.numel() and place in seen:
            continue
        seen.add(place)
        found[name] = tensor.detach().cpu().contiguous()
    return found


# onnx


class _Whole(nn.Module):
    """The model as a function of tensors alone: named inputs in their order, the main output out."""

    def __init__(self, model: PreTrainedModel, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Tensor) -> Tensor:
        found: Tensor = self.model(**dict(zip(self.names, inputs, strict=True)), return_dict=False)[
            0
        ]
        return found


def _write_onnx(model: AttentionModel, folder: Path) -> None:
    """Export, and compare with torch at two batch sizes and lengths; refuse what differs."""
    run = _runtime()
    example = {name: value.cpu() for name, value in _example(model).items()}
    names = list(example)
    here = model.model if model.device.type == "cpu" else copy.deepcopy(model.model).cpu()
    whole = _Whole(here, names).eval()
    shapes = tuple(_dynamic(name, value) for name, value in example.items())
    path = folder / "model.onnx"
    talk = logging.getLogger("torch.onnx")  # of packages that it could use too
    level = talk.level
    try:
        talk.setLevel(logging.ERROR)
        torch.onnx.export(
            whole,
            tuple(example.values()),
            str(path),
            input_names=names,
            output_names=["output"],
            dynamic_shapes=(shapes,),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    except Exception as cause:  # the exporter fails in its own hundred ways
        raise HeadscopeError(
            f"{type(model.model).__name__} cannot be exported ({reason(cause)})",
            where='`form="onnx"`',
            expected="small or plain",
        ) from cause
    finally:
        talk.setLevel(level)
    for batch, length in ((1, 5), (3, 9)):
        inputs = {name: _resized(value, batch, length) for name, value in example.items()}
        with torch.inference_mode():
            wanted = whole(*inputs.values())
        found = torch.from_numpy(run(path, {name: value.numpy() for name, value in inputs.items()}))
        difference = float((found - wanted).abs().max() / wanted.abs().max().clamp_min(1.0))
        if not difference < ONNX_TOLERANCE:
            raise HeadscopeError(
                f"the exported graph differs from torch by {difference:.1e} with {batch} sequences of {length} tokens",
                where='`form="onnx"`',
                expected="small or plain",
            )


def _dynamic(name: str, value: Tensor) -> dict[int, Any]:
    from torch.export import Dim

    return dict.fromkeys(range(min(value.dim(), 2)), Dim.AUTO)


def _example(model: AttentionModel) -> dict[str, Tensor]:
    """Two sequences, the second padded; with the segments of pairs where the model tells them apart."""
    inputs = sample_inputs(model, batch=2)
    segments = getattr(model.model.config, "type_vocab_size", 0) or 0
    takes = "token_type_ids" in inspect.signature(model.model.forward).parameters
    if takes and segments > 1:
        inputs["token_type_ids"] = torch.zeros_like(inputs["input_ids"])
        inputs["token_type_ids"][:, inputs["input_ids"].shape[1] // 2 :] = 1
    return inputs


def _resized(value: Tensor, batch: int, length: int) -> Tensor:
    """So many of the sequences in turns, the padded ones among them, cut to a length."""
    rows = value[torch.arange(batch) % len(value)]
    return (rows[:, :length] if rows.dim() == 2 else rows).contiguous()


def _runtime() -> Callable[[Path, dict[str, Any]], Any]:
    try:
        import onnx  # noqa: F401
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError as cause:
        raise HeadscopeError(
            f"{cause.name} is not installed",
            where='`form="onnx"`',
            fix='pip install "headscope[onnx]"',
        ) from cause

    def run(path: Path, inputs: dict[str, Any]) -> Any:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        wanted = {one.name for one in session.get_inputs()}
        return session.run(None, {name: value for name, value in inputs.items() if name in wanted})[
            0
        ]

    return run
