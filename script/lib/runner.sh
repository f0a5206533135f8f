# Running groups of tests one after the other, and counting.
# shellcheck shell=bash

PASSED=0 FAILED=0 SKIPPED=0 FAILURES=() SKIPS=() TIMES=()

# run_group NAME command...: runs one group and prints its output as it comes.
run_group() {
    local name=$1 log=$WORK/group.log began=$SECONDS status passed failed skipped line lines
    shift
    say "==> $name"
    set +e
    TIME_LIMIT=$GROUP_TIMEOUT run_child logged "$log" "$@"
    status=$?
    set -e
    { read -r passed failed skipped; mapfile -t lines; } < <(awk -f "$ROOT/script/lib/count.awk" "$log")
    # A runner that fails outside of a test, or finds no test at all, has failed too.
    if ((failed == 0 && (status != 0 || passed + skipped == 0))); then
        lines=("no test failed, but its runner ended with status $status after $passed")
        say "$name: ${lines[0]}"
        failed=1
    fi
    for line in "${lines[@]}"; do FAILURES+=("failed: $name: $line"); done
    while read -r line; do SKIPS+=("skipped: $name: $line"); done < <(sed -nE 's/^ok [0-9]+ - (.*) # SKIP (.*)/\1: \2/p' "$log")
    PASSED=$((PASSED + passed)) FAILED=$((FAILED + failed)) SKIPPED=$((SKIPPED + skipped))
    TIMES+=("$name $((SECONDS - began))")
    say "<== $name: $passed passed, $failed failed, $skipped skipped, $((SECONDS - began)) s"
}

# The time of each group, the skipped and the failed tests, the last line, and the exit status.
sum_up() {
    printf 'seconds: %s\n' "$(printf '%s, ' "${TIMES[@]}" | sed 's/, $//')"
    ((SKIPPED == 0)) || printf '%s\n' "${SKIPS[@]}"
    ((FAILED == 0)) || printf '%s\n' "${FAILURES[@]}"
    echo "$PASSED passed, $FAILED failed, $SKIPPED skipped"
    ((FAILED == 0))
}
