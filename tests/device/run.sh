#!/bin/bash
# Faults planted in the memory of a real device, one for each guard and each mode: builds kernels.cu
# with nvcc against an installed Attest, has each kernel judged, and says of each fault whether it
# was caught, and as what.
#
#   tests/device/run.sh PREFIX [FOLDER]     # FOLDER: for what is built and written; default: a new one
#
# NVCC names the compiler, ARCH its architecture (sm_90), KERNELS a library that is built already;
# FAMILY is how its kernels' names begin, and FORMATS which of f32 and f16 they take: so the tests of
# Attest try this script on the device that is none.
# Exits with 1 if a fault is missed or a correct kernel fails, with 2 if nothing could be judged.
set -u
here=$(cd "$(dirname "$0")" && pwd)
prefix=$(cd "${1:?run.sh PREFIX [FOLDER]}" && pwd) || exit 2
folder=${2:-$(mktemp -d)}
mkdir -p "$folder" && folder=$(cd "$folder" && pwd) || exit 2
chmod a+rx "$folder" # another user may be the testee's
attest=$prefix/bin/attest
kernels=${KERNELS:-$folder/kernels.so}
if [ ! -e "$kernels" ]; then
  "${NVCC:-nvcc}" -std=c++17 -O2 -arch="${ARCH:-sm_90}" -Xcompiler -fPIC -shared \
    -I"$prefix/include" "$here/kernels.cu" -o "$kernels" || exit 2
fi
chmod a+r "$kernels"

family=${FAMILY:-cuda}
calls=device/calls
f32=dtype=f32/data=normal/s=1
gaps=layout/strides/gaps/layouts=o_bshd_gap_7_q_bhsd_gap_5/$f32

# judge NAME KERNEL CASE WORD...: the outcome, and what its verdict must hold, each word somewhere.
judge() {
  local name=$1 kernel=$2 case=$3 expected=$4 log=$folder/$1.txt
  shift 4
  timeout 100 "$attest" repro "$case" --testee "$kernels:$family/$kernel" --call-limit 30 ${SANITIZER:+--sanitizer "$SANITIZER"} \
    >"$log" 2>&1
  local line verdict=caught word
  line=$(awk '/^  (clauses|reason|message)/ {sub(/^ +/, ""); printf "%s; ", $0}' "$log" | cut -c1-200)
  grep -q "^$expected " "$log" || verdict=missed
  for word in "$@"; do grep -qF -- "$word" "$log" || verdict=missed; done
  [ "$expected" = PASS ] && { [ $verdict = caught ] && verdict=right || verdict=wrong; }
  printf '%-7s %-24s %s %s\n' "$verdict" "$name" "$(head -n 1 "$log" | cut -c1-60)" "$line" \
    >"$folder/$name.verdict"
}

# What an error that lasts is to one of three cases: the other two are judged as ever.
judge_lasting() {
  local log=$folder/$1.txt verdict=caught
  timeout 100 "$attest" run --testee "$kernels:$family/$2" --cases "$calls/stream/$f32" \
    --cases "$calls/stream_decode/$f32" --cases "$calls/graph/$f32" --cases "$calls/new_shapes/$f32" \
    --profile none --jobs 1 --out "$folder/$1" >"$log" 2>&1
  local record=$folder/$1/results.jsonl
  [ "$(grep -c '"outcome":"PASS"' "$record")" = 3 ] || verdict=missed
  grep '"outcome":"FAIL"' "$record" | grep stream_decode | grep -q "$3" || verdict=missed
  printf '%-7s %-24s %s\n' "$verdict" "$1" \
    "$(grep '"outcome":"FAIL"' "$record" | grep -o '"message":"[^"]*"' | head -n 1 | cut -c1-150)" >"$folder/$1.verdict"
}

at_once=${AT_ONCE:-8}
start() {
  while [ "$(jobs -rp | wc -l)" -ge "$at_once" ]; do wait -n; done
  "$@" &
}

# The correct kernels, in every mode and both formats.
for mode in stream two_streams graph new_shapes; do
  start judge "right_$mode" right "$calls/$mode/$f32" PASS
  [[ ${FORMATS:-f32 f16} != *f16* ]] || start judge "right_${mode}_f16" right "$calls/${mode}_causal_groups/dtype=f16/data=normal/s=1" PASS
done
start judge right_decode right "$calls/graph_decode/$f32" PASS
start judge right_gaps right "$gaps" PASS
start judge right_scratch own_scratch "$calls/two_streams/$f32" PASS
start judge right_scratch_graph own_scratch "$calls/graph/$f32" PASS

# Guards.
case=$calls/stream/$f32
start judge writes_before writes_before "$case" FAIL "guard" "SAFE-1"
start judge writes_behind writes_behind "$case" FAIL "guard" "SAFE-1"
start judge writes_far_before writes_far_before "$case" FAIL "guard" "SAFE-1"
start judge writes_far_behind writes_far_behind "$case" FAIL "guard" "in device memory"
start judge writes_into_gap writes_into_gap "$gaps" FAIL "guard" "gap between rows of o"
start judge mutates_input mutates_input "$case" FAIL "input_mutated" "the input k"
start judge leaves_one_unwritten leaves_one_unwritten "$case" FAIL "unwritten"
start judge reads_slack reads_slack "$case" FAIL "nonfinite"
start judge overruns_workspace overruns_workspace "$case" FAIL "guard" "its workspace"

# Modes.
start judge default_stream default_stream "$case" FAIL "clauses  DEV-1"
start judge default_stream_in_graph default_stream "$calls/graph/$f32" FAIL "clauses  DEV-3"
start judge shares_scratch shares_scratch "$calls/two_streams/$f32" FAIL "clauses  DEV-2"
start judge bakes_inputs bakes_inputs "$calls/graph/$f32" FAIL "clauses  DEV-3"
start judge allocates allocates "$calls/graph/$f32" FAIL "clauses  DEV-3"
start judge keeps_first_shape keeps_first_shape "$calls/new_shapes/$f32" FAIL "clauses  DEV-4"
start judge keeps_last_shape keeps_last_shape "$calls/new_shapes/$f32" FAIL "clauses  DEV-4"

# Errors of the device.
start judge_lasting illegal_address illegal_address "the device is lost"
start judge_lasting bad_launch bad_launch "invalid"

# Under a sanitizer, where there is one.
if command -v compute-sanitizer >/dev/null; then
  SANITIZER="compute-sanitizer --tool memcheck" start judge sanitized_right right \
    "$calls/stream/$f32" PASS
  SANITIZER="compute-sanitizer --tool memcheck" start judge sanitized_illegal_address \
    illegal_address "$calls/stream_decode/$f32" FAIL "Invalid __global__ write"
else
  echo "skipped sanitized_*: there is no compute-sanitizer on the PATH"
fi
wait

cat "$folder"/*.verdict
bad=$(cat "$folder"/*.verdict | grep -c -E '^(missed|wrong)')
echo "$(cat "$folder"/*.verdict | grep -c '^caught') faults caught, $bad missed or wrong; logs in $folder"
[ "$bad" = 0 ]
