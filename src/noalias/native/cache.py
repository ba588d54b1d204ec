"""Where a built core is kept."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import sysconfig
from pathlib import Path

from noalias.native import toolchain


def root() -> Path:
    """``$NOALIAS_CACHE``, else the user's cache folder."""
    if named := os.environ.get("NOALIAS_CACHE"):
        return Path(named).expanduser().absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "noalias"
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "noalias"


def source_hash() -> str:
    digest = hashlib.sha256()
    for path in sorted(toolchain.SOURCES.iterdir()):
        if path.suffix in {".cpp", ".h"}:
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def key(compiler: toolchain.Compiler | None) -> str:
    import torch

    parts = {
        "torch": torch.__version__,
        "git": torch.version.git_version,
        "soabi": sysconfig.get_config_var("SOABI"),
        "machine": platform.machine(),
        "flags": toolchain.compile_flags() + toolchain.link_flags(),
        "sources": source_hash(),
        "compiler": compiler.identity if compiler else None,
    }
    text = json.dumps(parts, sort_keys=True, default=str)
    return f"torch-{torch.__version__}-{hashlib.sha256(text.encode()).hexdigest()[:20]}"
