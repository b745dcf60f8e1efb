#!/usr/bin/env bash
# Measures layers of published networks by retape, JAX and PyTorch on this machine: benches/peers/layers.sh [WORD ...], of
# which the lines of benches/layers/layers.txt begin with these words, after run.sh has installed the peers. Everything runs
# twice, in turn, and the faster run counts. All of it takes some eight minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${CARGO_TARGET_DIR:-target}/peers
export THREADS=${THREADS:-2}
cargo bench -p retape-benches --bench layers --no-run
rm -f "$folder"/layers.*.jsonl
for _ in 1 2; do
  RETAPE_THREADS=$THREADS cargo bench --quiet -p retape-benches --bench layers -- "$@" >> "$folder/layers.retape.jsonl"
  for system in jax torch; do
    "$folder/venv/bin/python" benches/peers/layers.py "$system" "$@" >> "$folder/layers.$system.jsonl"
  done
done
"$folder/venv/bin/python" benches/peers/layers.py table "$folder"
