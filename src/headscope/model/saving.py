"""Save a pruned model in one of three forms.

small  the weights that are left, and cut.json; loaded by `headscope.load`
plain  weights in the original shapes, with zeros in place of the removed heads; loaded by transformers
onnx   a graph for onnxruntime; its outputs are compared with torch before the directory is moved into place
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headscope.atomic_dir import atomic_directory
from headscope.errors import HeadscopeError, choices, note, reason
from headscope.model.attention_model import AttentionModel
from headscope.model.fixed_attention import FixedHeads, get_fixed_heads
from headscope.model.load import silence_transformers
from headscope.model.manifest import NAME, WEIGHTS, Manifest, write_manifest
from headscope.model.model_card import format_card
from headscope.model.pruning_record import PruningRecord
from headscope.model.reading_files import describe_left_out, write_reading
from headscope.model.sample_inputs import sample_inputs
from headscope.model.surgery import expand, origin_of
from headscope.model.tokenizer import write_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FORMS = ("small", "plain", "onnx")
ONNX_TOLERANCE = 1e-4  # relative to the largest output


def save(
    model: AttentionModel,
    out: str | Path,
    *,
    form: str = "small",
    chosen: PruningRecord | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a model to a directory, completely or not at all.

    form    small, plain or onnx
    chosen  how heads were chosen, for the manifest and the model card
    """
    check_form(form)
    check_form_fits(model, form)
    with atomic_directory(out, overwrite=overwrite, record=NAME) as folder:
        write_model(model, folder, form=form, chosen=chosen)
    return Path(out)


def check_form(form: str) -> None:
    """Raise if there is no such form, or if packages that it needs are not installed."""
    if form not in FORMS:
        raise HeadscopeError(
            f'"{form}" is not a form', where="`form`", expected=choices(form, FORMS)
        )
    if form == "onnx":
        _import_onnx()  # raises now instead of after the work is done


def check_form_fits(model: AttentionModel, form: str) -> None:
    """Raise if the model cannot be written in this form, or if its pooling cannot be written."""
    model.reading.check(model.name)
    if form != "small" and model.fixed:
        raise HeadscopeError(
            f"{len(model.fixed)} heads follow fixed patterns, which only headscope computes",
            where=f'`form="{form}"`',
            expected="small",
        )


def write_model(
    model: AttentionModel, folder: Path, *, form: str = "small", chosen: PruningRecord | None = None
) -> None:
    """Write the files of a model into an existing folder. An unpruned model is written as transformers writes it."""
    check_form_fits(model, form)
    chosen = PruningRecord(**(chosen or {}))
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


def make_manifest(model: AttentionModel, chosen: PruningRecord) -> Manifest:
    """The manifest (cut.json) of a pruned model."""
    origin = origin_of(model)
    modules: dict[str, tuple[int, ...]] = {}
    fixed: dict[str, FixedHeads] = {}
    for name, sites in model.attention_modules.items():
        numbers = sites[0].numbers or ()
        if len(numbers) < origin.widths[sites[0]]:
            modules[name] = numbers
        if (heads := get_fixed_heads(model.model.get_submodule(name))) is not None:
            fixed[name] = heads
    silent = () if model.cut is None else model.cut.silent
    kept = {site: site.numbers or () for site in model.sites}
    return Manifest(
        model_class=type(model.model).__name__,
        origin=origin,
        modules=modules | dict.fromkeys(silent, ()),
        kept=kept,
        chosen=chosen,
        fixed=fixed,
        left_out=model.reading.left_out,
    )


def _write_small(model: AttentionModel, folder: Path) -> None:
    """Write configurations and the weights that are left."""
    from safetensors.torch import save_file

    with silence_transformers():
        model.model.config.architectures = [type(model.model).__name__]
        model.model.config.save_pretrained(folder)
        if model.model.can_generate() and model.model.generation_config is not None:
            model.model.generation_config.save_pretrained(folder)
    save_file(_own_tensors(model.model), folder / WEIGHTS, metadata={"format": "pt"})


def _own_tensors(model: PreTrainedModel) -> dict[str, Tensor]:
    """The tensors of a model by name. Only the first of tied tensors is stored; loading ties the others to it again."""
    tensors: dict[str, Tensor] = {}
    stored: set[tuple[int, tuple[int, ...]]] = set()
    for name, tensor in model.state_dict().items():
        memory = tensor.data_ptr(), tuple(tensor.shape)
        if tensor.numel() and memory in stored:
            continue
        stored.add(memory)
        tensors[name] = tensor.detach().cpu().contiguous()
    return tensors


# The form onnx


class _TensorFunction(nn.Module):
    """The model as a function from tensors to a tensor, as torch.export needs it: inputs in the order of `names`."""

    def __init__(self, model: PreTrainedModel, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Tensor) -> Tensor:
        by_name = dict(zip(self.names, inputs, strict=True))
        output: Tensor = self.model(**by_name, return_dict=False)[0]
        return output


def _write_onnx(model: AttentionModel, folder: Path) -> None:
    """Write model.onnx, and raise if its outputs differ from torch at one of two batch sizes and lengths."""
    from torch.export import Dim

    run = _import_onnx()
    example = {name: value.cpu() for name, value in _example(model).items()}
    on_cpu = model.model if model.device.type == "cpu" else copy.deepcopy(model.model).cpu()
    function = _TensorFunction(on_cpu, list(example)).eval()
    # The first two axes, batch and length, may have any size.
    shapes = tuple(dict.fromkeys(range(min(x.dim(), 2)), Dim.AUTO) for x in example.values())
    path = folder / "model.onnx"
    logger = logging.getLogger("torch.onnx")  # it logs optional packages that are not installed
    level = logger.level
    try:
        logger.setLevel(logging.ERROR)
        torch.onnx.export(
            function,
            tuple(example.values()),
            str(path),
            input_names=list(example),
            output_names=["output"],
            dynamic_shapes=(shapes,),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    except Exception as cause:  # the exporter raises many unrelated exceptions
        raise HeadscopeError(
            f"{type(model.model).__name__} cannot be exported ({reason(cause)})",
            where='`form="onnx"`',
            expected="small or plain",
        ) from cause
    finally:
        logger.setLevel(level)
    for batch, length in ((1, 5), (3, 9)):
        inputs = {name: _resize(value, batch, length) for name, value in example.items()}
        with torch.inference_mode():
            expected = function(*inputs.values())
        arrays = {name: value.numpy() for name, value in inputs.items()}
        actual = torch.from_numpy(run(path, arrays))
        difference = float((actual - expected).abs().max() / expected.abs().max().clamp_min(1.0))
        if not difference < ONNX_TOLERANCE:  # NaN must fail as well
            raise HeadscopeError(
                f"the exported graph differs from torch by {difference:.1e} with {batch} sequences of {length} tokens",
                where='`form="onnx"`',
                expected="small or plain",
            )


def _example(model: AttentionModel) -> dict[str, Tensor]:
    """Inputs of two sequences, the second with padding; with two segments if the model has segments."""
    inputs = sample_inputs(model, batch=2)
    segments = getattr(model.model.config, "type_vocab_size", 0) or 0
    if model.takes_segments and segments > 1:
        inputs["token_type_ids"] = torch.zeros_like(inputs["input_ids"])
        inputs["token_type_ids"][:, inputs["input_ids"].shape[1] // 2 :] = 1
    return inputs


def _resize(value: Tensor, batch: int, length: int) -> Tensor:
    """Repeat the sequences of `value` in turn up to a batch size, and truncate them to a length."""
    rows = value[torch.arange(batch) % len(value)]
    return (rows[:, :length] if rows.dim() == 2 else rows).contiguous()


def _import_onnx() -> Callable[[Path, dict[str, Any]], Any]:
    """A function of (path of a graph, {name: array}) that runs the graph and returns its output.

    Raises if packages are not installed.
    """
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
        names = {argument.name for argument in session.get_inputs()}
        return session.run(None, {name: inputs[name] for name in inputs if name in names})[0]

    return run
