#!/usr/bin/env bash
# Measures a list by retape, JAX and PyTorch on this machine: benches/peers/turns.sh jobs|layers|ops|programs [NAME ...], after run.sh has
# installed the peers. Everything runs twice, in turn, and the faster run counts.
set -euo pipefail
cd "$(dirname "$0")/../.."
list=$1
shift
folder=${CARGO_TARGET_DIR:-target}/peers
export THREADS=${THREADS:-2}
cargo bench -p retape-benches --bench "$list" --no-run
rm -f "$folder/$list".*.jsonl
for _ in 1 2; do
  RETAPE_THREADS=$THREADS cargo bench --quiet -p retape-benches --bench "$list" -- "$@" >> "$folder/$list.retape.jsonl"
  for system in jax torch; do
    "$folder/venv/bin/python" "benches/peers/$list.py" "$system" "$@" >> "$folder/$list.$system.jsonl"
  done
done
"$folder/venv/bin/python" "benches/peers/$list.py" table "$folder"
