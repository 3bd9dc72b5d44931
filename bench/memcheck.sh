#!/usr/bin/env bash
# compute-sanitizer over one launch of every variant on both kernels; then over a planted fault, which it must report.
# Run from the repository's root, after `python bench/gpu.py build`. Every tensor is an allocation of its own.
set -u
python=${PYTHON:-python3}
export PYTORCH_NO_CUDA_MEMORY_CACHING=1
sanitize=(compute-sanitizer --tool memcheck --error-exitcode 9 --report-api-errors no --print-limit 5)

echo "memcheck: every variant"
"${sanitize[@]}" "$python" bench/memcheck.py run "$@" || { echo "memcheck: FAILED"; exit 3; }

echo "memcheck: a planted fault"
report=$("${sanitize[@]}" "$python" bench/memcheck.py planted 2>&1)
status=$?
grep -m 3 -E "Invalid __global__|ERROR SUMMARY" <<<"$report"
if ! grep -q "Invalid __global__ write" <<<"$report"; then
    echo "memcheck: FAILED: the planted fault was not reported (exit $status)"
    exit 3
fi
echo "memcheck: clean, and the planted fault is reported"
