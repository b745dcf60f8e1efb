#!/usr/bin/env bash
# Measures single jobs by retape, JAX and PyTorch on this machine: benches/peers/jobs.sh [JOB ...].
exec "$(dirname "$0")/turns.sh" jobs "$@"
