#!/usr/bin/env bash
# Builds what tests/gpu/run.sh runs, for a machine that has a GPU and no Rust toolchain: the tests of the runtime, of the
# kernels and of the crate on GPUs, and the bench, stripped, in one folder (target/gpu-pack unless another is named).
#
#   tests/gpu/pack.sh [FOLDER]
#
# RETAPE_PACK_DEBUG=1 builds no release, to try the scripts. The stand-in driver lies there too, for `run.sh --quick`.
set -euo pipefail
cd "$(dirname "$0")/../.."

target=${CARGO_TARGET_DIR:-target}
folder=${1:-$target/gpu-pack}
options=(--release)
profile=release
if [ -n "${RETAPE_PACK_DEBUG:-}" ]; then
  options=()
  profile=debug
fi

rm -rf "$folder"
mkdir -p "$folder/stand-in"

# Builds a test of a package and puts it there under a name.
put_test() {
  local package=$1 name=$2 to=$3 built
  built=$(cargo test "${options[@]}" -p "$package" --test "$name" --no-run 2>&1 \
    | tee >(cat >&2) | sed -n 's/.*Executable .*(\(.*\))$/\1/p')
  cp "$built" "$folder/$to"
}

put_test retape-runtime-tests cuda runtime
put_test retape-kernels-tests gpu kernels
put_test retape-tests gpu retape
cargo build "${options[@]}" -p retape-tests --example gpu_bench
cargo build "${options[@]}" -p retape-cuda-sim
cp "$target/$profile/examples/gpu_bench" "$folder/gpu_bench"
# Tests without a GPU look for it beside them; everyone else is led to it by LD_LIBRARY_PATH.
cp "$target/$profile/libretape_cuda_sim.so" "$folder/stand-in/libcuda.so.1"
strip "$folder"/{runtime,kernels,retape,gpu_bench} "$folder/stand-in/libcuda.so.1"
git describe --always --dirty > "$folder/commit"

limit=$((64 << 20))
size=$(du --bytes --summarize "$folder" | cut -f 1)
echo "$folder: $size bytes"
[ "$size" -le "$limit" ] || { echo "more than $limit bytes" >&2; exit 1; }
