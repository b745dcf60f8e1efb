#!/usr/bin/env bash
# Measures layers of published networks by retape, JAX and PyTorch on this machine: benches/peers/layers.sh [WORD ...], of
# which the lines of benches/layers/layers.txt begin with these words. All of it takes some eight minutes.
exec "$(dirname "$0")/turns.sh" layers "$@"
