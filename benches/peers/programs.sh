#!/usr/bin/env bash
# Measures random programs by retape, JAX and PyTorch on this machine: benches/peers/programs.sh [NUMBER ...], those of
# benches/programs/programs.txt with these numbers. All of it takes some five minutes.
exec "$(dirname "$0")/turns.sh" programs "$@"
