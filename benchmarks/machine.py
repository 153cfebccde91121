"""What a figure was measured on: without it a figure means nothing."""

from __future__ import annotations

import os
import platform
import tempfile
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter


def facts(*packages: str) -> dict[str, str]:
    return {
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "fdatasync": f"{sync_us():.0f} us (median of 200 writes of 4 KiB)",
        "Python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


def sync_us() -> float:
    """How long the disk takes to make a small write durable: the floor under every append."""
    with tempfile.NamedTemporaryFile(dir=".") as file:
        taken = []
        for _ in range(200):
            os.pwrite(file.fileno(), b"x" * 4096, 0)
            began = perf_counter()
            os.fdatasync(file.fileno())
            taken.append(perf_counter() - began)
    return median(taken) * 1e6


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()
