"""The scripts of reproduce/ import each other and the benchmarks' helpers by name."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "reproduce"), str(ROOT / "benchmarks")]
