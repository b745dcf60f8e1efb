#!/usr/bin/env bash
# Tests and measures on a machine with an NVIDIA GPU. It needs Python; PyTorch and JAX are measured too where they are
# installed. It needs no network and no Rust toolchain: programs are built before, on any machine of the same kind with a
# C library that is not newer, by
#
#   tests/gpu/pack.sh                     puts them into target/gpu-pack, less than 64 MiB
#
# Carry that folder (nothing tracked by git is in it) together with the repository, to the same places, and there run
#
#   tests/gpu/run.sh                      tests, checks and measurements; writes benches/gpu.json and prints a table
#   tests/gpu/run.sh tests                the tests alone
#   tests/gpu/run.sh bench OPTIONS        checks and measurements; OPTIONS go to tests/gpu/bench.py, for example
#                                         --only matmul,mlp --skip torch.compile --budget 400
#
# RETAPE_GPU_PACK=FOLDER names another folder, RETAPE_GPU_OUT=FILE another place for the figures.
# `--quick` before these runs everything on the stand-in driver, on tiny sizes and without a GPU, to try the scripts: its
# times mean nothing, are marked as simulated, and go to target/gpu-quick.json.
# The exit code says whether tests and checks passed and losses agree; how fast anything is has no part in it.
set -uo pipefail
cd "$(dirname "$0")/../.."

pack=$(realpath --canonicalize-missing "${RETAPE_GPU_PACK:-target/gpu-pack}")
python=${PYTHON:-python3}
out=${RETAPE_GPU_OUT:-benches/gpu.json}
quick=()
if [ "${1:-}" = --quick ]; then
  shift
  quick=(--quick --cpu-peers)
  out=${RETAPE_GPU_OUT:-target/gpu-quick.json}
  export LD_LIBRARY_PATH=$pack/stand-in
fi
what=${1:-all}
[ $# -eq 0 ] || shift

[ -x "$pack/gpu_bench" ] || { echo "$pack holds no programs; tests/gpu/pack.sh makes them" >&2; exit 2; }
chmod +x "$pack"/{runtime,kernels,retape,gpu_bench}

failed=()

run_tests() {
  local name log
  mkdir -p "$(cat "$pack/tmpdir")" target
  for name in runtime kernels retape; do
    log=target/gpu-$name.log
    echo "== tests of $name"
    # What is real here is that the system's driver is used.
    RETAPE_TEST_GPU=real timeout 300 "$pack/$name" > "$log" 2>&1
    local code=$?
    grep -E '^test result|^    [a-z_:0-9]+$' "$log" | sort -u
    if [ $code -ne 0 ]; then
      failed+=("tests of $name (exit code $code)")
      grep -E "panicked at|^error|assertion" -A 3 "$log" | head -n 60
    fi
  done
}

run_bench() {
  echo "== checks and measurements"
  "$python" -u tests/gpu/bench.py --pack "$pack" --out "$out" "${quick[@]}" "$@" || failed+=("checks or losses")
  echo "figures in $out"
}

command -v nvidia-smi > /dev/null && nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
case $what in
  all) run_tests; run_bench "$@" ;;
  tests) run_tests ;;
  bench) run_bench "$@" ;;
  *) echo "tests, bench or nothing" >&2; exit 2 ;;
esac

if [ ${#failed[@]} -gt 0 ]; then
  printf 'failed: %s\n' "${failed[@]}"
  exit 1
fi
echo "everything passed"
