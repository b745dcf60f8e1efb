#!/usr/bin/env bash
# Measures retape and its peers on this machine: benches/peers/run.sh [ROUNDS] [WORKLOAD ...]
# With BURN=1 burn is one of them.
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-2}
[ $# -gt 0 ] && shift
workloads=${*:-digits_train digits_predict mlp elementwise elementwise_ns tiny transformer matmul512 matmul1024 matmul2048 lstm autoencoder resnet dispatch1 dispatch50}
threads=${THREADS:-2}
target=${CARGO_TARGET_DIR:-target}
folder=$target/peers
python=$folder/venv/bin/python
if [ ! -x "$python" ]; then
  python3 -m venv "$folder/venv"
  "$python" -m pip install --quiet --disable-pip-version-check numpy jax==0.10.2 jaxlib==0.10.2 torch==2.15.0
fi
cargo build --release --example workloads
if [ "${BURN:-0}" = 1 ]; then
  cargo build --release --manifest-path benches/peers/burn/Cargo.toml --target-dir "$folder/burn"
  cores=$("$python" -c "import os; print(*sorted(os.sched_getaffinity(0))[:$threads], sep=',')")
fi
lines=$folder/lines.jsonl
: > "$lines"

# Waits, half a minute at most, until others use less than a quarter of a core.
busy() { awk '/^cpu /{print $2 + $3 + $4 + $7 + $8 + $9}' /proc/stat; }
quiet() {
  for _ in $(seq 30); do
    local before after
    before=$(busy); sleep 1; after=$(busy)
    [ $((after - before)) -lt 25 ] && return
  done
}
keep() { tail -n 1 | grep '^{' >> "$lines" || echo "failed: $*" >&2; }
own() { quiet; "$target/release/examples/workloads" "$1" --repeat 20 --threads "$threads" --json | keep "$@"; }
peer() {
  quiet
  timeout 300 "$python" benches/peers/peers.py --framework "$1" --workload "$2" --repeat 20 --max-seconds 4 \
    --threads "$threads" "${@:3}" 2> /dev/null | keep "$@"
}
burn() {
  quiet
  timeout 300 taskset --cpu-list "$cores" "$folder/burn/release/peer-burn" "$1" --repeat 20 --max-seconds 4 | keep burn "$@" || true
}

for round in $(seq "$rounds"); do
  for w in $workloads; do
    echo "round $round: $w" >&2
    own "$w"
    peer jax "$w"
    peer torch "$w"
    own "$w"
    peer torch_compile "$w"
    [ "${BURN:-0}" != 1 ] || burn "$w"
    case $w in
      tiny) peer jax "$w" --variant scan ;;
      lstm) peer torch "$w" --variant fused; peer jax "$w" --variant scan ;;
      digits_train | resnet | autoencoder)
        peer torch "$w" --variant cl --keep-malloc
        peer torch_compile "$w" --variant cl --keep-malloc ;;
      digits_predict | elementwise | elementwise_ns | transformer | mlp)
        for p in jax torch torch_compile; do peer $p "$w" --keep-malloc; done ;;
    esac
    own "$w"
  done
done
"$python" benches/peers/ratios.py "$lines"
