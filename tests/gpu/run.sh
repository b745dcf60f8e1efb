#!/usr/bin/env bash
# Tests and measures on a machine with an NVIDIA GPU. It needs Python; PyTorch and JAX are measured too where they are
# installed. It needs no network and no Rust toolchain: programs are built before, on any machine of the same kind with a
# C library that is not newer, by
#
#   tests/gpu/pack.sh                     puts them into target/gpu-pack, and into target/gpu-pack.tar.gz, less than 48 MiB
#
# Carry that archive (nothing tracked by git is in it) together with the repository, to the same places, and there run
#
#   tests/gpu/run.sh                      tests, checks and measurements; writes benches/gpu.json, and its table as
#                                         benches/gpu.txt
#   tests/gpu/run.sh tests [NAME..]       the tests alone, or some of: runtime, kernels, retape; NAME:PART runs those
#                                         whose names have that part, such as retape:graphs
#   tests/gpu/run.sh bench OPTIONS        checks and measurements; OPTIONS go to tests/gpu/bench.py, for example
#                                         --only matmul,mlp --skip torch.compile --budget 400
#
# Tests take at most RETAPE_GPU_LIMIT seconds in all (540 unless set), and no measurement begins after --budget seconds
# (500), so each of these ends within ten minutes; what there was no time for is named in the figures, or fails as a test.
# Where a machine is lent for ten minutes at a time, do it in parts. Each adds its figures to those that the file has of
# the same device and commit, so bring the file along. On an H100 or H200 the tests took 45 to 55 seconds when each had a
# process of its own, eight at a time; a first torch.compile of a model can take more than a minute, so that it may be
# left out (--skip):
#
#   tests/gpu/run.sh tests
#   tests/gpu/run.sh bench --only check,cold
#   tests/gpu/run.sh bench --only digits,mlp,copy,elementwise,negate,launch
#   tests/gpu/run.sh bench --only matmul_bf16_4096,matmul_f32_4096,transformer
#   tests/gpu/run.sh bench --only matmul_tf32_4096,_1024,_8192
#
# RETAPE_GPU_PACK=FOLDER names another folder, RETAPE_GPU_OUT=FILE another place for the figures, PYTHON another Python.
# `--quick` before these runs everything on the stand-in driver, on tiny sizes and without a GPU, to try the scripts: its
# times mean nothing, are marked as simulated, and go to target/gpu-quick.json.
# The exit code says whether tests and checks passed, every workload ran, and losses agree with those of the processor and
# of the peers; how fast anything is has no part in it.
set -uo pipefail
cd "$(dirname "$0")/../.."

target=${CARGO_TARGET_DIR:-target}
pack=$(realpath --canonicalize-missing "${RETAPE_GPU_PACK:-$target/gpu-pack}")
python=${PYTHON:-python3}
out=${RETAPE_GPU_OUT:-benches/gpu.json}
quick=()
if [ "${1:-}" = --quick ]; then
  shift
  quick=(--quick --cpu-peers)
  out=${RETAPE_GPU_OUT:-$target/gpu-quick.json}
  [ -d "$pack/stand-in" ] || { echo "$pack has no stand-in driver; tests/gpu/pack.sh makes it" >&2; exit 2; }
  export LD_LIBRARY_PATH=$pack/stand-in
fi
what=${1:-all}
[ $# -eq 0 ] || shift

# The archive may have come later than the folder.
if [ -f "$pack.tar.gz" ] && [ ! "$pack/gpu_bench" -nt "$pack.tar.gz" ]; then
  mkdir -p "$pack"
  tar --extract --touch --file "$pack.tar.gz" --directory "$pack"
fi
[ -f "$pack/gpu_bench" ] || { echo "$pack holds no programs; tests/gpu/pack.sh makes them" >&2; exit 2; }
# Some ways to carry files lose it.
chmod +x "$pack"/{runtime,kernels,retape,gpu_bench}
mkdir -p "$target" "$(dirname "$out")"

failed=()

run_tests() {
  local name log names=("$@") end=$((SECONDS + ${RETAPE_GPU_LIMIT:-540}))
  [ ${#names[@]} -gt 0 ] || names=(runtime kernels retape)
  for name in "${names[@]}"; do
    log=$target/gpu-${name/:/-}.log
    local part=()
    [ "$name" = "${name%%:*}" ] || part=("${name#*:}")
    echo "== tests of $name"
    # The system's driver is used, and not the stand-in.
    RETAPE_TEST_GPU=real timeout $((end > SECONDS ? end - SECONDS : 1)) "$pack/${name%%:*}" "${part[@]}" > "$log" 2>&1
    local code=$?
    grep -E '^test result:|^    [a-z_:0-9]+$' "$log" | sort -u
    if [ $code -ne 0 ]; then
      failed+=("tests of $name (exit code $code)")
      [ $code -ne 124 ] || echo "the time was up; $(grep -c '^test .* ok$' "$log") tests had passed"
      grep -E "panicked at|^error|assertion" -A 3 "$log" | head -n 60
    fi
  done
}

run_bench() {
  echo "== checks and measurements"
  "$python" -u tests/gpu/bench.py --pack "$pack" --out "$out" "${quick[@]}" "$@" || failed+=("checks or measurements")
  echo "figures in $out, as a table in ${out%.json}.txt"
}

command -v nvidia-smi > /dev/null && nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
case $what in
  all) run_tests; run_bench "$@" ;;
  tests) run_tests "$@" ;;
  bench) run_bench "$@" ;;
  *) echo "tests, bench or nothing" >&2; exit 2 ;;
esac

if [ ${#failed[@]} -gt 0 ]; then
  printf 'failed: %s\n' "${failed[@]}"
  exit 1
fi
echo "everything passed"
