#!/usr/bin/env bash
# Prepares what rdsbench compares with and does not come with Go: libzmq, through
# a small program of our own. Without it the rows of libzmq are skipped, with the
# reason. A run with nothing to do takes well under a second.
#
#   bench/setup.sh    install libzmq3-dev and gcc if missing (needs root), compile
#
# The program goes to $RDS_BENCH_CACHE, else ${XDG_CACHE_HOME:-$HOME/.cache}/rds-bench.
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
cache=${RDS_BENCH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rds-bench}
say() { printf 'bench/setup: %s\n' "$*" >&2; }

missing=()
command -v gcc >/dev/null || missing+=(gcc libc6-dev)
[[ -e /usr/include/zmq.h ]] || missing+=(libzmq3-dev)
if ((${#missing[@]})); then
  say "installing ${missing[*]}"
  if [[ $EUID -eq 0 ]]; then sudo=(); else sudo=(sudo); fi
  "${sudo[@]}" apt-get update -q >&2
  DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}" >&2
fi

mkdir -p "$cache"
program=$cache/zmqbench
if [[ ! $program -nt $here/zmq/zmqbench.c ]]; then
  # Beside its name first: a run may be using the old one.
  gcc -O2 -Wall -Wextra -o "$program.new" "$here/zmq/zmqbench.c" -lzmq -lpthread
  mv "$program.new" "$program"
fi
say "libzmq is ready: $program"
