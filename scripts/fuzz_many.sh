#!/usr/bin/env bash
# Fuzzes on many processors: scripts/fuzz_many.sh SECONDS JOBS OUT. Lies beside the targets (scripts/fuzz_package.sh), needs no source tree.
# Each of JOBS processes runs the targets in turn, with other seeds; what one finds new, later runs of that target start from.
# OUT/summary.md says what ran; OUT/findings holds the input and the words of each failure.
set -euo pipefail
seconds=${1:?SECONDS JOBS OUT} jobs=${2:?SECONDS JOBS OUT}
mkdir -p "${3:?SECONDS JOBS OUT}"
here=$(cd "$(dirname "$0")" && pwd) out=$(cd "$3" && pwd)
mkdir -p "$out/runs" "$out/findings" "$out/kept"
mapfile -t targets < <(cd "$here" && ls -d ./*_fuzz | sed 's/^..//; s/_fuzz$//')

# Short stacks and a small quarantine: both are most of what a small input costs under the address sanitizer.
leaks=1
export UBSAN_OPTIONS=print_stacktrace=1
options() { echo "malloc_context_size=8:quarantine_size_mb=16:hard_rss_limit_mb=6000:detect_leaks=$leaks"; }

# run NAME SEED SECONDS: one process; a failure is kept, and is no failure of this script.
run() {
  local name=$1 seed=$2 time=$3 folder=$out/runs/$1-$2 code=0
  mkdir -p "$folder" "$out/kept/$name"
  (cd "$folder" && ASAN_OPTIONS=$(options) LD_LIBRARY_PATH=$here/lib timeout -k 5 $((time + 40)) "$here/${name}_fuzz" -runs=1000000000000 \
    -seconds="$time" -seed="$seed" -limit=30 -keep="$out/kept/$name" "$here/corpus/$name" "$out/kept/$name" >out 2>&1) || code=$?
  [ $code = 0 ] && return
  cp "$folder/crash.input" "$out/findings/$name-$seed.input" 2>/dev/null || true
  { echo "rc $code"; tail -n 80 "$folder/out"; } >"$out/findings/$name-$seed.log"
}

# job NUMBER: the targets in turn until the time is over.
job() {
  local number=$1 turn=0 begin=$SECONDS slice=$((seconds / ${#targets[@]})) name end
  [ $slice -gt 0 ] || slice=1
  for turn in "${!targets[@]}"; do
    name=${targets[$(((number + turn) % ${#targets[@]}))]}
    end=$((begin + (turn + 1) * slice))
    # After a failure the rest of the turn goes to another seed.
    for ((again = 0; SECONDS < end && again < 50; ++again)); do run "$name" $((1 + number + 1000 * (1 + again))) $((end - SECONDS)); done
  done
}

# Where processes may not trace each other, leaks cannot be looked for.
(cd "$out" && ASAN_OPTIONS=$(options) LD_LIBRARY_PATH=$here/lib "$here/${targets[0]}_fuzz" "$here/corpus/${targets[0]}" >probe 2>&1) || true
if grep -q "LeakSanitizer has encountered a fatal error" "$out/probe"; then leaks=0; fi

begin=$SECONDS
for ((k = 0; k < jobs; ++k)); do job $k & done
wait

{
  echo "$jobs processes, $((SECONDS - begin)) s, $(nproc) processors, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1); leaks looked for: $leaks"
  echo
  echo "| target | inputs | a second, each process | kept | pairs of blocks reached | findings |"
  echo "|---|---|---|---|---|---|"
  for name in "${targets[@]}"; do
    cat "$out/runs/$name"-*/out | awk -v name="$name" -v findings="$(find "$out/findings" -name "$name-*.log" | wc -l)" '
      / inputs, no finding/ { inputs += $1; gsub(/[(,)]/, ""); rate += $5; ++runs; if ($8 > kept) kept = $8; if ($10 > pairs) pairs = $10 }
      END { printf "| %s | %d | %d | %d | %d | %d |\n", name, inputs, runs ? rate / runs : 0, kept, pairs, findings }'
  done
  echo
  echo "in all: $(cat "$out"/runs/*/out | awk '/ inputs, no finding/ { inputs += $1 } END { printf "%d", inputs }') inputs, $(find "$out/findings" -name '*.log' | wc -l) findings"
  grep -h -m 1 "SUMMARY" "$out"/findings/*.log 2>/dev/null | sort | uniq -c || true
  (cd "$out/findings" && ls -- *.input 2>/dev/null || true)
} | tee "$out/summary.md"
