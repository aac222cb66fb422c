"""Statistics are compared with the reference twins that lie beside this directory."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
