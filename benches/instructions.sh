#!/bin/sh
# Instructions per coroutine switch and per fiber yield in shared-TLS mode, and of a hand-over by std's
# channel by the part that they serve, counted by callgrind.
set -eu
cd "$(dirname "$0")/.."

if ! command -v valgrind >/dev/null; then
    echo "valgrind is not installed (on Debian: apt-get install valgrind)" >&2
    exit 1
fi
cargo build --quiet --release -p carefree-benches --example instructions
program=${CARGO_TARGET_DIR:-target}/release/examples/instructions
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Valgrind's own stack-switch warnings go to the log with the count.
run() { # mode what rounds
    if ! CAREFREE_CARRIERS=1 CAREFREE_TLS="$1" valgrind --tool=callgrind \
        --callgrind-out-file="$scratch/$3" --log-file="$scratch/log" "$program" "$2" "$3" >/dev/null; then
        cat "$scratch/log" >&2
        exit 1
    fi
    sed -n 's/.*Collected *: *\([0-9]*\).*/\1/p' "$scratch/log"
}

for what in coroutine corosensei yield; do
    few=$(run shared "$what" 20000)
    many=$(run shared "$what" 120000)
    # A round is two switches: there and back, or a yield of each of two fibers.
    awk -v what="$what" -v few="$few" -v many="$many" 'BEGIN {
        printf "%-12s %6.1f instructions a switch\n", what, (many - few) / 200000
    }'
done

# Each line that callgrind counts has a source file and the function it was inlined into: ours by the file,
# what of the core library was inlined into ours by the function.
parts() { # rounds
    callgrind_annotate --threshold=100 --auto=no "$scratch/$1" | awk '
        !/^ *[0-9,]+ \(.*:/ || /PROGRAM TOTALS/ { next }
        {
            count = $1
            gsub(",", "", count)
            if (/:<?std::/ || /mpmc|mpsc|hand_over|malloc|_int_free|calloc|memcpy/)
                part = "the channel: std, and malloc for it"
            else if (/crates\/(context\/src\/arch\/x86_64|runtime\/src\/carrier\/(switch|queue|carrier)|runtime\/src\/protocol\/(bias|ring|sleepers))|carrier::make_ready/)
                part = "switch, run queue"
            else if (/crates\/(interpose|ground)|crates\/context\/src\/arch\/float|crates\/runtime\/src\/(wait|carrier\/(bucket|quiet)|protocol\/episode)|:(carefree_interpose|syscall)|:carefree_runtime::wait|parker/)
                part = "waiting and waking: the calls of futex(2), the list of waiters"
            else
                part = "else"
            sum[part] += count
        }
        END { for (part in sum) printf "%s\t%d\n", part, sum[part] }'
}

run own hand-over 20000 >/dev/null
run own hand-over 120000 >/dev/null
parts 20000 > "$scratch/few"
parts 120000 | awk -F'\t' '
    NR == FNR { few[$1] = $2; next }
    { count = ($2 - few[$1]) / 200000; sum += count; line[++lines] = sprintf("%6.0f  %s", count, $1) }
    END {
        printf "hand-over    %6.0f instructions:\n", sum
        for (i = 1; i <= lines; i++) print line[i] | "sort -rn"
    }' "$scratch/few" -
