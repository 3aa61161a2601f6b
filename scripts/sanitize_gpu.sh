#!/bin/bash
# Runs every operator, and the cases of the SIMT back end, under NVIDIA's compute-sanitizer: small kernels, launched by the
# process that the sanitizer watches. Prints one line for each tool and operator and exits with 1 if any found something.
#
#   scripts/sanitize_gpu.sh [-b BUILD] [-j JOBS] [-t TOOLS] [-l LOGS] [OPERATOR...]
#
# BUILD (build/dev) is configured with -DNESTOR_GPU_TESTS=ON and has gpu_operators and gpu_simt built. TOOLS: memcheck,racecheck,
# synccheck,initcheck by default. OPERATOR: names (attention, softmax); simt: the cases; default: all. LOGS keeps what the tools
# wrote. $COMPUTE_SANITIZER names the program where it is not on the path, NESTOR_GPU_KERNELS how many kernels of each variant
# and sizes (3) are run. A variant or a pattern may stand for operators: 'attention__causal*'. Kernels are made once and kept in
# $NESTOR_GPU_KERNEL_FOLDER (BUILD/gpu_kernels), which `-t make` fills on a machine without a GPU as well.
set -u
build=build/dev jobs=4 tools=memcheck,racecheck,synccheck,initcheck logs=
while getopts b:j:t:l: option; do
  case $option in
    b) build=$OPTARG ;;
    j) jobs=$OPTARG ;;
    t) tools=$OPTARG ;;
    l) logs=$OPTARG ;;
    *) sed -n '5,12s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
done
shift $((OPTIND - 1))

export NESTOR_GPU_KERNEL_FOLDER=${NESTOR_GPU_KERNEL_FOLDER:-$build/gpu_kernels}
sanitizer=${COMPUTE_SANITIZER:-$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)}
[ "$tools" = make ] || [ -x "$sanitizer" ] || { echo "no compute-sanitizer at '$sanitizer': set COMPUTE_SANITIZER" >&2; exit 2; }
operators=$(find "$build" -name gpu_operators -type f -executable | head -1)
simt=$(find "$build" -name gpu_simt -type f -executable | head -1)
[ -n "$operators" ] && [ -n "$simt" ] || {
  echo "gpu_operators and gpu_simt are not in '$build': configure it with -DNESTOR_GPU_TESTS=ON and build both" >&2
  exit 2
}
[ -n "$logs" ] || logs=$(mktemp -d)
mkdir -p "$logs"

# One tool and one operator: a line with what it says.
check() {
  local tool=$1 name=$2 log="$logs/$1-${2//[^A-Za-z0-9_]/_}.log" program=$operators filter="all/*/$2__*" options=()
  if [ "$name" = simt ]; then program=$simt filter='*'; fi
  [[ $name == *__* ]] && filter="all/*/$name"
  # Memory that is written before the kernel runs would hide what the kernel leaves out.
  local poison=1
  [ "$tool" = initcheck ] && poison=0
  [ "$tool" = memcheck ] && options=(--leak-check no)
  [ "$tool" = racecheck ] && options=(--racecheck-report all)
  local start=$SECONDS
  NESTOR_GPU_POISON=$poison "$sanitizer" --tool "$tool" "${options[@]}" --error-exitcode 99 \
    "$program" --gtest_filter="$filter" > "$log" 2>&1
  local status=$? passed verdict=ok
  passed=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$log" | tail -1)
  local kernels
  kernels=$(sed -n 's/^launched \([0-9]*\) kernels/\1/p' "$log" | awk '{ sum += $1 } END { if (NR) print sum }')
  local summary
  summary=$(sed -n 's/^========= \(ERROR SUMMARY: .*\|RACECHECK SUMMARY: .*\)/\1/p' "$log" | tail -1)
  # A tool that printed no summary did not see the program to its end; a program without tests showed nothing.
  if [ $status -ne 0 ] || [ -z "$summary" ] || [ "${passed:-0}" = 0 ] || grep -q '\[  SKIPPED \]' "$log"; then verdict=FAILED; fi
  printf '%-10s %-34s %-6s %s tests, %s kernels, %s (%d s)\n' "$tool" "$name" "$verdict" "${passed:-0}" "${kernels:-?}" \
    "${summary:-no summary, exit code $status: see $log}" $((SECONDS - start))
  [ "$verdict" = ok ]
}
export -f check
export sanitizer operators simt logs

if [ $# -eq 0 ]; then
  # "  kernels_of.../softmax__f32  # GetParam() = ..."
  mapfile -t names < <("$operators" --gtest_list_tests | sed -n 's|^  [^/]*/\([a-z0-9_]*\)__.*|\1|p' | uniq)
  set -- simt "${names[@]}"
fi
# Kernels first: each process would make them anew.
for ((shard = 0; shard < jobs; ++shard)); do
  filter=$(printf ':all/*/%s__*:all/*/%s' $(for name in "$@"; do echo "$name" "$name"; done))
  CUDA_VISIBLE_DEVICES='' GTEST_TOTAL_SHARDS=$jobs GTEST_SHARD_INDEX=$shard "$operators" --gtest_filter="${filter#:}" \
    > "$logs/make-$shard.log" 2>&1 &
done
wait
grep -h '^\[  FAILED  \]' "$logs"/make-*.log | sort -u
if [ "$tools" = make ]; then
  echo "$(find "$NESTOR_GPU_KERNEL_FOLDER" -name '*.json' | wc -l) files of kernels in $NESTOR_GPU_KERNEL_FOLDER"
  exit 0
fi
for tool in ${tools//,/ }; do printf "$tool %s\n" "$@"; done | xargs -P "$jobs" -L 1 bash -c 'check "$@"' check
status=$?
echo "logs in $logs"
[ $status -eq 0 ]
