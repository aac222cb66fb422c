"""The golden files, compared or, with --update-golden or HEADSCOPE_UPDATE_GOLDEN=1, written anew."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import pytest
from golden_files import Golden
from golden_studies import Studies


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", default=False, help="Write the golden files anew"
    )


@pytest.fixture(scope="session")
def golden(request: pytest.FixtureRequest) -> Golden:
    is_update = request.config.getoption("update_golden", default=False)
    return Golden(update=bool(is_update) or os.environ.get("HEADSCOPE_UPDATE_GOLDEN") == "1")


@pytest.fixture(scope="session")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Studies:
    """The studies of this process; each is made when a test first needs it."""
    return Studies(tmp_path_factory.mktemp("golden"))
