# Running idem_chaos, and proving that it finds what it is there to find.
# shellcheck shell=bash

BUGS_FOLDER=$ROOT/test/chaos/bugs

# Few locks and connections, so that they can be used up; commits that a crash of the server does
# not lose; sweepers that never rest.
CHAOS_SETTINGS=(
    shared_preload_libraries=idempotency
    idempotency.cleanup_interval=1s
    idempotency.cleanup_grace=0
    fsync=off
    full_page_writes=off
    max_connections=52
    max_locks_per_transaction=10
    max_prepared_transactions=60
    max_wal_senders=4
    deadlock_timeout=100ms
    autovacuum_naptime=1s
    log_min_messages=warning
    log_min_error_statement=panic
)

chaos_program() { echo "$BUILD/cmake/test/chaos/idem_chaos"; }

# Of what CMake builds, the checker alone.
build_checker() {
    quietly "configuring with CMake" \
        cmake -S "$SRC" -B "$BUILD/cmake" -DCMAKE_BUILD_TYPE=RelWithDebInfo
    quietly "building the checker" \
        cmake --build "$BUILD/cmake" --target idem_chaos --parallel "$(nproc)"
}

build_for_chaos() {
    ensure_installed
    build_checker
}

# ---- scenarios ----

# The mixed one gets half of the time, the others share the rest.
run_scenarios() {
    local scenario status=0 worst=0 seed=$SEED
    [[ $seed ]] || seed=$((RANDOM * 32768 + RANDOM + 1))
    ((${#SCENARIOS[@]})) || SCENARIOS=(mixed drop sync async disk)
    for scenario in "${SCENARIOS[@]}"; do
        status=0
        run_scenario "$scenario" "$seed" "$(seconds_of "$scenario")" || status=$?
        ((status == 0)) || worst=$((worst == 1 ? 1 : status))
    done
    say "seed $seed"
    return "$worst"
}

seconds_of() {
    local all=${#SCENARIOS[@]} seconds=$((MINUTES * 60))
    if ((all == 1)); then
        echo "$seconds"
    elif [[ $1 == mixed ]]; then
        echo $((seconds / 2))
    else
        echo $((seconds / 2 / (all - 1)))
    fi
}

# run_scenario NAME SEED SECONDS: on a cluster of its own.
run_scenario() {
    local name=$1 seed=$2 seconds=$3 status=0 disk=()
    if [[ $name == disk ]]; then
        mount_small_disk || { say "SKIPPED: scenario disk, for want of the right to mount"; return 0; }
        disk=(--disk "$WORK/small-disk/records")
    fi
    start_chaos_cluster "$name"
    run_child chaos --scenario "$name" --seed "$seed" --seconds "$seconds" "${disk[@]}" \
        "${OPTIONS[@]}" || status=$?
    ((status == 0)) || keep_server_log "$name"
    stop_servers_below "$WORK/$name"
    [[ $name != disk ]] || unmount_small_disk
    return "$status"
}

start_chaos_cluster() {
    start_cluster "$1" "${CHAOS_SETTINGS[@]}"
    "$PG_BINDIR/createdb" chaos
    export PGDATA=$WORK/$1/data PG_BINDIR
}

# The user that runs the server also harms it. Histories go where that user can write.
chaos() {
    run_as_postgres mkdir -p "$WORK/histories"
    local status=0
    run_as_postgres "$(chaos_program)" --keep "$WORK/histories" "$@" || status=$?
    keep_histories
    return "$status"
}

keep_histories() {
    local folder=${KEEP:-$BUILD/chaos}
    [[ -n $(find "$WORK/histories" -name '*.jsonl' -print -quit) ]] || return 0
    mkdir -p "$folder"
    mv "$WORK/histories"/*.jsonl "$folder"
    say "kept in $folder"
}

keep_server_log() {
    local folder=${KEEP:-$BUILD/chaos}
    mkdir -p "$folder"
    cp "$WORK/$1/server.log" "$folder/$1-server.log"
}

# A disk of 24 MB that only this run fills.
mount_small_disk() {
    local disk=$WORK/small-disk
    mkdir -p "$disk"
    "${AS_ROOT[@]}" mount -t tmpfs -o size=24m tmpfs "$disk" 2>/dev/null || return 1
    mkdir "$disk/records"
    hand_over "$disk"
}

unmount_small_disk() { "${AS_ROOT[@]}" umount "$WORK/small-disk"; }
