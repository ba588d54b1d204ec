"""``python -m noalias``."""

from __future__ import annotations

import sys

from noalias.cli import main

sys.exit(main())
