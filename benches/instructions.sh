#!/bin/sh
# Instructions per coroutine switch and per fiber yield in shared-TLS mode, counted by callgrind.
set -eu
cd "$(dirname "$0")/.."

if ! command -v valgrind >/dev/null; then
    echo "valgrind is not installed (on Debian: apt-get install valgrind)" >&2
    exit 1
fi
cargo build --quiet --release -p carefree-benches --example instructions
program=${CARGO_TARGET_DIR:-target}/release/examples/instructions

# Valgrind's own stack-switch warnings go to the log with the count.
count() { # what rounds
    log=$(mktemp)
    if ! CAREFREE_CARRIERS=1 CAREFREE_TLS=shared valgrind --tool=callgrind \
        --callgrind-out-file=/dev/null --log-file="$log" "$program" "$1" "$2" >/dev/null; then
        cat "$log" >&2
        rm -f "$log"
        exit 1
    fi
    sed -n 's/.*Collected *: *\([0-9]*\).*/\1/p' "$log"
    rm -f "$log"
}

for what in coroutine corosensei yield; do
    few=$(count "$what" 20000)
    many=$(count "$what" 120000)
    # A round is two switches: there and back, or a yield of each of two fibers.
    awk -v what="$what" -v few="$few" -v many="$many" 'BEGIN {
        printf "%-12s %6.1f instructions a switch\n", what, (many - few) / 200000
    }'
done
