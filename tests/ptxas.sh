#!/usr/bin/env bash
# Assembles every kernel that tests and models make, with NVIDIA's assembler: no error, no stack, no spilled register.
#
#   tests/ptxas.sh             for compute capability 7.5, 8.0, 9.0 and 10.0
#
# Needs the Rust toolchain, and Python with pip, which installs `ptxas` alone under target/ptxas; no GPU, no driver, no
# toolkit. PTXAS=FILE takes an installed one. The kernels are what the interpreter of the tests reads while they run,
# and the kernels of real graphs (tests/examples/ptx_dump.rs); the text for 9.0 runs on later devices, so 10.0 is made from it.
# Each is assembled as a whole program, and those for 9.0 as a part of one too, which is how a driver that links does it.
# Prints a table, and fails on any finding, or if there was nothing to assemble. RETAPE_PTXAS_DEBUG=1 builds no release.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=target/ptxas
texts=$PWD/$folder/texts
batches=$folder/batches
target=${CARGO_TARGET_DIR:-target}
options=(--quiet --release)
profile=release
if [ -n "${RETAPE_PTXAS_DEBUG:-}" ]; then
  options=(--quiet)
  profile=debug
fi

install() {
  if [ -n "${PTXAS:-}" ]; then
    printf '%s\n' "$PTXAS"
    return
  fi
  local found
  found=$(find "$folder/tool" -path '*/bin/ptxas' -type f 2> /dev/null | head -n 1)
  if [ -z "$found" ]; then
    if ! python3 -m pip --version > /dev/null 2>&1; then
      apt-get update --quiet >&2
      apt-get install --yes --quiet --no-install-recommends python3-pip >&2
    fi
    # It is one program that needs nothing else of the package's dependencies.
    python3 -m pip install --quiet --disable-pip-version-check --no-deps --root-user-action=ignore \
      --target "$folder/tool" nvidia-cuda-nvcc==13.0.88 >&2
    found=$(find "$folder/tool" -path '*/bin/ptxas' -type f | head -n 1)
  fi
  chmod +x "$found"
  printf '%s\n' "$found"
}

# The texts, each once: files are named by their contents.
collect() {
  rm -rf "$texts" "$batches"
  mkdir -p "$texts" "$batches"
  export RETAPE_PTX_DUMP=$texts RETAPE_CUBIN_CACHE=0
  # Packages alone would have other features than all together, for which everything would be compiled again.
  cargo test "${options[@]}" --workspace --test ptx --test gpu
  cargo build "${options[@]}" --workspace --example ptx_dump
  # Most of the work of each is on one thread.
  printf '%s\n' 75 80 90 | xargs -P "$(nproc)" -L 1 "$target/$profile/examples/ptx_dump"
  unset RETAPE_PTX_DUMP RETAPE_CUBIN_CACHE
}

# Files of many kernels of one target and version: to start the assembler for each would take longer than its work.
batch() {
  find "$texts" -name '*.ptx' | sort | awk -v folder="$batches" '
    {
      file = $0; body = ""
      name = file; sub(/.*\//, "", name); sub(/\.ptx$/, "", name)
      while ((getline line < file) > 0) {
        split(line, words, " ")
        if (words[1] == ".version") version = words[2]
        else if (words[1] == ".target") { target = words[2]; sub(/sm_/, "", target) }
        else if (words[1] != ".address_size") {
          # The kernel is called as its file is, so that the assembler names it.
          if (words[2] == ".entry") sub(/\.entry [A-Za-z0-9_]+/, ".entry " name, line)
          body = body line "\n"
        }
      }
      close(file)
      if (n[version, target]++ % 40 == 0) {
        out = sprintf("%s/%s_%s_%03d.ptx", folder, target, version, n[version, target] / 40)
        last[version, target] = out
        print ".version " version "\n.target sm_" target "\n.address_size 64" > out
      }
      printf "%s", body >> last[version, target]
      close(last[version, target])
    }'
}

# The targets that a text for one is assembled for, and how.
targets() {
  case $1 in
    90) echo "90:whole 90:relocatable 100:whole" ;;
    *) echo "$1:whole" ;;
  esac
}

assemble() {
  local file sm target
  for file in "$batches"/*.ptx; do
    sm=$(basename "$file" | cut -d _ -f 1)
    for target in $(targets "$sm"); do
      printf '%s %s %s\n' "${target%:*}" "${target#*:}" "$file"
    done
  done > "$batches/work"
  # shellcheck disable=SC2016
  xargs -P "$(nproc)" -L 1 sh -c '
    to=$3.$2.$1
    "$0" -v $([ "$2" = whole ] || echo -c) -arch="sm_$1" "$3" -o "$to.cubin" > "$to.log" 2>&1 ||
      echo "exit $?" >> "$to.log"
    rm -f "$to.cubin"' "$ptxas" < "$batches/work"
}

table() {
  local n
  n=$(find "$texts" -name '*.ptx' | wc -l)
  awk -v texts="$n" '
    FNR == 1 { split(FILENAME, parts, "."); sm = parts[length(parts) - 1]; mode = parts[length(parts) - 2] }
    /Compiling entry function/ { split($0, quoted, "\047"); name = quoted[2]; n[sm]++; n_of[mode]++ }
    /bytes stack frame/ {
      if ($1 != 0 || $5 != 0 || $9 != 0) { found++; print "sm_" sm " " name ": " $0 }
    }
    /Used [0-9]+ registers/ {
      match($0, /Used [0-9]+ registers/); registers = substr($0, RSTART + 5, RLENGTH - 15) + 0
      if (registers > most[sm]) { most[sm] = registers; most_name[sm] = name }
      shared = 0
      if (match($0, /[0-9]+ bytes smem/)) shared = substr($0, RSTART, RLENGTH - 11) + 0
      if (shared > largest[sm]) { largest[sm] = shared; largest_name[sm] = name }
    }
    /error|fatal|warning|^exit/ { found++; print "sm_" sm " " FILENAME ": " $0 }
    END {
      for (i = split("75 80 90 100", order, " "); i > 0; i--) if (!(order[i] in n)) {
        found++; print "nothing was assembled for sm_" order[i]
      }
      # Whole for its target, and for 10.0 and in part if it is for 9.0.
      if (n_of["whole"] - n[100] != texts || n_of["relocatable"] != n[100]) {
        found++; print "not all of " texts " texts were assembled"
      }
      printf "%-8s%9s  %-48s%s\n", "target", "kernels", "most registers", "most static shared memory"
      for (i = 1; i <= 4; i++) {
        sm = order[i]
        printf "%-8s%9d  %-48s%s\n", "sm_" sm, n[sm], most[sm] " (" most_name[sm] ")",
          largest[sm] + 0 " bytes" (largest[sm] ? " (" largest_name[sm] ")" : "")
      }
      print (found + 0) " findings"
      exit found > 0
    }' "$batches"/*.log
}

mkdir -p "$folder"
ptxas=$(install)
"$ptxas" --version | tail -n 1
collect
batch
assemble
table
