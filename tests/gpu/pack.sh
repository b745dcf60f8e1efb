#!/usr/bin/env bash
# Builds what tests/gpu/run.sh runs, for a machine that has a GPU and no Rust toolchain: the tests of the runtime, of the
# kernels and of the crate on GPUs, and the bench, stripped, in one folder (target/gpu-pack unless another is named), and
# packed as FOLDER.tar.gz beside it, which is what to carry.
#
#   tests/gpu/pack.sh [FOLDER]
#
# RETAPE_PACK_DEBUG=1 builds no release, to try the scripts. The stand-in driver lies there too, for `run.sh --quick`.
set -euo pipefail
cd "$(dirname "$0")/../.."

target=${CARGO_TARGET_DIR:-target}
folder=${1:-$target/gpu-pack}
folder=${folder%/}
options=(--release)
profile=release
if [ -n "${RETAPE_PACK_DEBUG:-}" ]; then
  options=()
  profile=debug
fi

rm -rf "$folder"
mkdir -p "$folder/stand-in"

# Builds the tests of one name in all packages, whose features are those of all together: packages alone would have
# others, for which everything would be compiled again. Prints cargo's messages.
build_tests() {
  cargo test "${options[@]}" --workspace --test "$1" --no-run --message-format json-render-diagnostics
}

# Puts a test of a package there under a name, from the messages that it is given.
put_test() {
  local package=$1 to=$2 built
  built=$(grep "#$package@" | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
  cp "$built" "$folder/$to"
}

build_tests cuda | put_test retape-runtime-tests runtime
messages=$(build_tests gpu)
put_test retape-kernels-tests kernels <<< "$messages"
put_test retape-tests retape <<< "$messages"
cargo build "${options[@]}" --workspace --example gpu_bench
cargo build "${options[@]}" -p retape-cuda-sim
cp "$target/$profile/examples/gpu_bench" "$folder/gpu_bench"
# Tests without a GPU look for it beside them; everyone else is led to it by LD_LIBRARY_PATH.
cp "$target/$profile/libretape_cuda_sim.so" "$folder/stand-in/libcuda.so.1"
strip "$folder"/{runtime,kernels,retape,gpu_bench} "$folder/stand-in/libcuda.so.1"
git describe --always --dirty > "$folder/commit"

archive=$folder.tar.gz
tar --create --gzip --file "$archive" --directory "$folder" runtime kernels retape gpu_bench commit
# Beside it the repository travels.
limit=$((48 << 20))
size=$(stat --format %s "$archive")
echo "$archive: $size bytes"
[ "$size" -le "$limit" ] || { echo "more than $limit bytes" >&2; exit 1; }
