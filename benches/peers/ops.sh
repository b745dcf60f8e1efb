#!/usr/bin/env bash
# Measures single operations by retape, JAX and PyTorch on this machine: benches/peers/ops.sh [WORD ...], of which the lines
# of benches/ops/ops.txt begin with these words. All of it takes some ten minutes.
exec "$(dirname "$0")/turns.sh" ops "$@"
