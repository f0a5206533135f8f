# Running idem_chaos, and proving that it finds planted bugs.
# shellcheck shell=bash

BUGS_FOLDER=$ROOT/test/chaos/bugs
SCALEOUT_BUGS=$BUGS_FOLDER/scaleout

# Few locks and connections, so that they run out; commits survive a crash of the server; sweepers
# never rest.
CHAOS_SETTINGS=(
    shared_preload_libraries=idempotency
    idempotency.cleanup_interval=1s
    idempotency.cleanup_grace=0
    fsync=off
    full_page_writes=off
    max_connections=76
    max_locks_per_transaction=10
    max_prepared_transactions=60
    max_wal_senders=4
    deadlock_timeout=100ms
    autovacuum_naptime=1s
    client_min_messages=error
)

# The server's user runs it, and may be unable to enter the checkout.
chaos_program() { echo "$WORK/idem_chaos"; }

# Of what CMake builds, the checker alone.
build_checker() {
    build_with_cmake "the checker" idem_chaos
    install -m 755 "$BUILD/cmake/test/chaos/idem_chaos" "$(chaos_program)"
}

build_for_chaos() {
    ensure_installed
    build_checker
}

# ---- scenarios ----

# The mixed one gets half of the time, the others share the rest.
# shellcheck disable=SC2153 # script/chaos sets SEED and OPTIONS
run_scenarios() {
    local scenario status=0 worst=0 seed=$SEED
    [[ $seed ]] || seed=$((RANDOM * 32768 + RANDOM + 1))
    ((${#SCENARIOS[@]})) || SCENARIOS=(mixed drop sync async restore disk)
    for scenario in "${SCENARIOS[@]}"; do
        status=0
        until_it_counts "$(seconds_of "$scenario")" run_scenario "$scenario" "$seed" || status=$?
        worst=$(worse "$worst" "$status")
    done
    say "seed $seed"
    return "$worst"
}

# worse A B: the worse of two exit statuses, for the promises.
worse() {
    local status
    for status in 1 4 2 5 3; do
        (($1 != status && $2 != status)) || { echo "$status"; return; }
    done
    echo "$(($1 > $2 ? $1 : $2))"
}

# until_it_counts SECONDS command...: runs the command with SECONDS behind it, three times at most: longer each time while
# no fault hits an open claim, as on a slow machine (without faults that would not help), and as it was while the
# machine's clock goes back, or the search for an order is cut off.
until_it_counts() {
    local seconds=$1 status
    shift
    for _ in 1 2 3; do
        status=0
        "$@" "$seconds" || status=$?
        case $status in
            3) [[ " ${OPTIONS[*]} " != *" --faults none "* ]] || break; seconds=$((seconds * 3)) ;;
            4 | 5) ;;
            *) break ;;
        esac
    done
    return "$status"
}

seconds_of() {
    local all=${#SCENARIOS[@]} seconds=$((MINUTES * 60))
    if [[ $SECONDS_EACH ]]; then
        echo "$SECONDS_EACH"
    elif ((all == 1)); then
        echo "$seconds"
    elif [[ $1 == mixed ]]; then
        echo $((seconds / 2))
    else
        echo $((seconds / 2 / (all - 1)))
    fi
}

# run_scenario NAME SEED SECONDS: on a new cluster.
# shellcheck disable=SC2153
run_scenario() {
    local name=$1 seed=$2 seconds=$3 status=0 disk=()
    if [[ $name == disk ]]; then
        mount_small_disk || { say "SKIPPED: scenario disk: no right to mount one"; return 0; }
        disk=(--disk "$WORK/small-disk/records")
    fi
    rm -rf "${WORK:?}/$name"
    start_chaos_cluster "$name"
    run_child chaos --scenario "$name" --seed "$seed" --seconds "$seconds" "${disk[@]}" \
        "${OPTIONS[@]}" || status=$?
    ((status == 0)) || keep_server_log "$name"
    stop_servers_below "$WORK/$name"
    [[ $name != disk ]] || unmount_small_disk
    return "$status"
}

# start_chaos_cluster NAME [setting=value ...]
start_chaos_cluster() {
    start_cluster "$1" "${CHAOS_SETTINGS[@]}" "${@:2}"
    "$PG_BINDIR/createdb" chaos
    export PGDATA=$WORK/$1/data PG_BINDIR
}

# The server's user also injects the faults. Histories go where that user can write.
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
    local folder=$WORK/small-disk
    mkdir -p "$folder"
    "${AS_ROOT[@]}" mount -t tmpfs -o size=24m tmpfs "$folder" 2>/dev/null || return 1
    mkdir "$folder/records"
    hand_over "$folder"
}

# Also while a server still uses it.
unmount_small_disk() {
    ! mountpoint -q "$WORK/small-disk" || "${AS_ROOT[@]}" umount -l "$WORK/small-disk"
}

# Runs first at every end of the script.
leave() {
    local status=$?
    set +e
    [[ -z $WORK ]] || unmount_small_disk
    (exit "$status")
    clean_up
}

# ---- planted bugs ----

# Each file says in its head which invariant it violates, how to run so that this is seen soon, and
# with which settings of the server, if it matters; what follows is a patch, if the bug is one of the
# module. All bugs, or those named:
bug_files() {
    local name
    (($#)) || { printf '%s\n' "$BUGS_FOLDER"/*.patch; return; }
    for name in "$@"; do
        [[ -f $BUGS_FOLDER/$name.patch ]] || die "no bug '$name'; see --list-bugs"
        echo "$BUGS_FOLDER/$name.patch"
    done
}

list_bugs() {
    local file
    for file in "$BUGS_FOLDER"/*.patch; do
        printf '%-40s %s\n' "$(basename "$file" .patch)" "$(head_of "$file" Expect)"
    done
}

# head_of FILE FIELD
head_of() { sed -n "/^--- /q; s/^$2: //p" "$1"; }
is_patch() { grep -q '^--- ' "$1"; }

patch_tree() { patch -d "$1" -p0 --no-backup-if-mismatch --force "${@:3}" <"$2"; }

# Whether every patch still applies to the sources, and the result compiles.
bugs_fit() {
    local file
    copy_sources "$WORK/fitted"
    while read -r file; do
        is_patch "$file" || continue
        if patch_tree "$WORK/fitted" "$file" >"$WORK/fitted.log" 2>&1 && patched_compiles "$file"; then
            patch_tree "$WORK/fitted" "$file" -R >/dev/null
            continue
        fi
        echo "does not fit: $file"
        show_tail 20 "$WORK/fitted.log"
        return 1
    done < <(bug_files; BUGS_FOLDER=$SCALEOUT_BUGS bug_files)
}

patched_compiles() {
    local objects
    mapfile -t objects < <(sed -nE 's|^\+\+\+ (src/.*)\.cpp$|\1.o|p' "$1")
    ((${#objects[@]} == 0)) ||
        make_in "$WORK/fitted-build" "$WORK/fitted" -j "$(nproc)" "${objects[@]}" \
            >"$WORK/fitted.log" 2>&1
}

# Prints one TAP line for each bug.
prove_bugs() {
    local file files number=0 missed=0
    mapfile -t files < <(bug_files "$@")
    build_for_chaos
    prepare_planting
    for file in "${files[@]}"; do
        number=$((number + 1))
        if caught "$file"; then
            echo "ok $number - $(basename "$file" .patch) is caught: $(head_of "$file" Expect), seed $CAUGHT_BY"
        else
            echo "not ok $number - $(basename "$file" .patch) is caught"
            show_tail 40 "$WORK/planted.log"
            missed=$((missed + 1))
        fi
    done
    ((missed == 0))
}

# A tree to plant bugs in, with the objects of the sound module, so that only files changed by a bug
# are compiled.
prepare_planting() {
    copy_sources "$WORK/planted"
    cp -a "$(module_folder)" "$WORK/planted-build"
    find "$WORK/planted-build" -name '*.d' -exec sed -i "s|$SRC/|$WORK/planted/|g" {} +
}

# Runs with the bug, for a few seconds and with five seeds at most, each time for longer.
caught() {
    local file=$1 seed options status=1
    read -ra options <<<"$(head_of "$file" Options)"
    if (plant "$file") >"$WORK/planted.log" 2>&1; then
        for seed in 1 2 3 4 5; do
            "$RUN_PLANTED" "$file" --seed "$seed" --seconds $((seed * 6)) "${options[@]}" || continue
            CAUGHT_BY=$seed status=0
            break
        done
    fi
    ! is_patch "$file" || patch_tree "$WORK/planted" "$file" -R >/dev/null
    return "$status"
}

plant() {
    ! is_patch "$1" || patch_tree "$WORK/planted" "$1" || return
    make_in "$WORK/planted-build" "$WORK/planted" -j "$(nproc)" || return
    SRC=$WORK/planted MODULE_FOLDER=$WORK/planted-build install_module "$OUR_CONFIG"
}

# Whether the checker has found the expected violation. On a cluster another function runs.
RUN_PLANTED=run_planted
run_planted() {
    local file=$1 status=0 settings
    shift
    rm -rf "$WORK/planted-cluster"
    read -ra settings <<<"$(head_of "$file" Settings)"
    (
        start_chaos_cluster planted-cluster "${settings[@]}"
        run_as_postgres "$(chaos_program)" "$@"
    ) >"$WORK/planted.log" 2>&1 || status=$?
    stop_servers_below "$WORK/planted-cluster"
    has_found "$file" "$status"
}

# has_found BUG STATUS: whether a run with the bug, of which that was the exit status, has reported the expected
# violation; a clock that went back hides none.
has_found() {
    (($2 == 1 || $2 == 5)) && grep -q "violated: $(head_of "$1" Expect)," "$WORK/planted.log"
}
