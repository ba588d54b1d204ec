#!/usr/bin/env bash
# Everything that needs a GPU, in under four minutes, as JSON in benchmarks/results/ (or in $OUT).
#
#   benchmarks/device.sh              # on cuda
#   benchmarks/device.sh --dry-run    # the same commands on a CPU at tiny sizes, results thrown away
#
# Needs Python 3.10 or newer with torch, rich and ninja, and a C++ compiler; no network and no
# installation: it runs from the source tree and builds the core into a folder of its own.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3}
device=cuda
sizes=full
results=${OUT:-benchmarks/results}

case "${1:-}" in
  "") ;;
  --dry-run)
    device=cpu
    sizes=tiny
    ;;
  *)
    echo "device.sh: unknown argument '$1': give none, or --dry-run" >&2
    exit 2
    ;;
esac

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if [ "$sizes" = tiny ]; then results=$scratch; fi
# Kept between runs where the caller names a cache; thrown away otherwise.
export NOALIAS_CACHE=${NOALIAS_CACHE:-$scratch/cache}
export PYTHONPATH=$PWD/src${PYTHONPATH:+:$PYTHONPATH}
mkdir -p "$NOALIAS_CACHE" "$results"
chmod 700 "$NOALIAS_CACHE"

"$python" - <<'PY'
import importlib.util
import sys

missing = [name for name in ("torch", "rich", "ninja") if importlib.util.find_spec(name) is None]
if missing:
    sys.exit(f"device.sh: {sys.executable} lacks {', '.join(missing)}: pip install {' '.join(missing)}")
PY
if [ "$device" = cuda ]; then
  "$python" -c 'import sys, torch; sys.exit(0 if torch.cuda.is_available() else
    f"device.sh: torch {torch.__version__} sees no CUDA device; use --dry-run without one")'
  name=$("$python" -c 'import re, torch
print(re.sub("[^a-z0-9]+", "-", torch.cuda.get_device_name().lower()).strip("-"))')
else
  name=dry-run
fi

failed=()
# One table failing (out of memory, a package that is missing) must not cost the others.
measure() {
  local table=$1 limit=$2
  shift 2
  local target=$results/$name-$table.json begin=$SECONDS
  if timeout "$limit" "$python" -m noalias bench "$@" \
    --device "$device" --format json -o "$target"; then
    echo "$table: $((SECONDS - begin)) s, $target"
  else
    echo "$table: FAILED after $((SECONDS - begin)) s" >&2
    failed+=("$table")
  fi
}

"$python" -m noalias build
if [ "$sizes" = full ]; then
  measure three-way 60 three-way --preset seed --rounds 10
  measure three-way-two-layers 60 three-way --preset seed --layers 2 --rounds 10
  measure hot-path 60 hot-path --rounds 60
  measure inplace 45 inplace --rounds 20
  measure growth 60 growth --steps 64,256,1024 --rounds 5 --stock-limit 3
  measure models 60 models --rounds 5
else
  measure three-way 300 three-way --shape 2x8x16 --rounds 1
  measure three-way-two-layers 300 three-way --shape 2x8x16 --layers 2 --rounds 1
  measure hot-path 300 hot-path --rounds 1
  measure inplace 300 inplace --rounds 1
  measure growth 300 growth --steps 8,16 --rounds 1 --stock-limit 3
fi

if [ ${#failed[@]} -gt 0 ]; then
  echo "device.sh: failed: ${failed[*]}" >&2
  exit 1
fi
