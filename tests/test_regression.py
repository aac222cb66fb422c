"""The script that compares two commits: what counts as a difference, and what is masked."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    specification = importlib.util.spec_from_file_location(
        "regression", ROOT / "scripts" / "regression.py"
    )
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["regression"] = module  # dataclasses look their module up
    specification.loader.exec_module(module)
    return module


def write_outputs(
    folder: Path,
    *,
    value: str = "0.12345678901234567",
    seconds: str = "1.5",
    version: str = "5.1.0",
) -> Path:
    step = folder / "evaluate"
    (step / "study").mkdir(parents=True)
    (step / "step.json").write_text(json.dumps({"status": 0, "seconds": float(seconds)}))
    (step / "stdout.txt").write_text(
        f"loss {value}\n1.{seconds} times as fast [0.9, {seconds}] in {seconds} s\n"
        f"check it: headscope evaluate {folder}/small --task stsb --limit 3\n{folder}/study\n"
    )
    (step / "study" / "heads.csv").write_text(f"head,value,time\n3.2,{value},{seconds}\n")
    (step / "study" / "run.json").write_text(
        f'{{"versions": {{"torch": "{version}"}}, "durations": {{"load": {seconds}}}, "loss": {value}, '
        f'"path": "{folder}", "sha256": "{version}"}}'
    )
    np.savez(step / "study" / "maps.npz", maps=np.array([1.0, float(value)]))
    (step / "study" / "index.html").write_text(
        f'<p>{value}</p><script type="application/json">{{"time": {seconds}, "loss": {value}}}</script>'
    )
    return folder


def test_equal_folders_pass(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = write_outputs(tmp_path / "before"), write_outputs(tmp_path / "after")
    assert script.main(["compare", str(before), str(after)]) == 0
    assert "evaluate: 5 files" in capsys.readouterr().out


def test_masked_fields_do_not_matter(script: ModuleType, tmp_path: Path) -> None:
    before = write_outputs(tmp_path / "before")
    after = write_outputs(tmp_path / "other" / "after", seconds="2.25", version="5.2.1")
    assert script.main(["compare", str(before), str(after)]) == 0


@pytest.mark.parametrize(
    "name", ["stdout.txt", "study/heads.csv", "study/run.json", "study/index.html"]
)
def test_a_number_changed_in_the_last_digit_fails(
    script: ModuleType, tmp_path: Path, name: str
) -> None:
    before, after = write_outputs(tmp_path / "before"), write_outputs(tmp_path / "after")
    file = after / "evaluate" / name
    file.write_text(file.read_text().replace("0.12345678901234567", "0.12345678901234568"))
    assert script.main(["compare", str(before), str(after)]) == 1


def test_the_last_bit_of_an_array_matters(script: ModuleType, tmp_path: Path) -> None:
    before, after = write_outputs(tmp_path / "before"), write_outputs(tmp_path / "after")
    maps = np.load(after / "evaluate/study/maps.npz")["maps"]
    np.savez(after / "evaluate/study/maps.npz", maps=np.nextafter(maps, 2))
    assert script.main(["compare", str(before), str(after)]) == 1


def test_the_last_bit_of_a_weight_matters(script: ModuleType, tmp_path: Path) -> None:
    header = json.dumps({"weight": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    folders = [write_outputs(tmp_path / name) for name in ("before", "after")]
    for folder, last in zip(
        folders, (1.0, np.nextafter(np.float32(1), np.float32(2))), strict=True
    ):
        weights = np.array([0.5, last], np.float32).tobytes()
        content = len(header).to_bytes(8, "little") + header + weights
        (folder / "evaluate" / "model.safetensors").write_bytes(content)
    assert script.main(["compare", *map(str, folders)]) == 1


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("name", ["study/heads.csv", "step.json"])
def test_a_missing_file_fails(script: ModuleType, tmp_path: Path, side: str, name: str) -> None:
    before, after = write_outputs(tmp_path / "before"), write_outputs(tmp_path / "after")
    (tmp_path / side / "evaluate" / name).unlink()
    assert script.main(["compare", str(before), str(after)]) == 1


def test_a_failed_step_fails_the_comparison(script: ModuleType, tmp_path: Path) -> None:
    before, after = write_outputs(tmp_path / "before"), write_outputs(tmp_path / "after")
    for folder in (before, after):
        (folder / "evaluate" / "step.json").write_text('{"status": 1}')
    assert script.main(["compare", str(before), str(after)]) == 1
