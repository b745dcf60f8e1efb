#!/usr/bin/env bash
# Measures single jobs by retape, JAX and PyTorch on this machine: benches/peers/jobs.sh [JOB ...], after run.sh has
# installed the peers. Everything runs twice, in turn, and the faster run counts.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${CARGO_TARGET_DIR:-target}/peers
export THREADS=${THREADS:-2}
cargo bench -p retape-benches --bench jobs --no-run
rm -f "$folder"/jobs.*.jsonl
for _ in 1 2; do
  RETAPE_THREADS=$THREADS cargo bench --quiet -p retape-benches --bench jobs -- "$@" >> "$folder/jobs.retape.jsonl"
  for system in jax torch; do
    "$folder/venv/bin/python" benches/peers/jobs.py "$system" "$@" >> "$folder/jobs.$system.jsonl"
  done
done
"$folder/venv/bin/python" benches/peers/jobs.py table "$folder"
