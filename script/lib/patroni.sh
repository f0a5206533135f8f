# Patroni and etcd for script/chaos --patroni, alone and with Citus, and running it.
# shellcheck shell=bash

PATRONI_VERSION=4.1.5
FAILOVER_BUGS=$ROOT/test/chaos/bugs/failover

# The settings of a cluster's servers in addition to test/chaos/failover/patroni.yml. Nothing has to survive
# a crash of the machine.
FAILOVER_SETTINGS=(
    idempotency.cleanup_interval=1s
    idempotency.cleanup_grace=0
    fsync=off
    deadlock_timeout=100ms
    autovacuum_naptime=1s
    client_min_messages=warning
)

# Where it is kept for the next run.
patroni_folder() { echo "${IDEM_PATRONI:-$(cache_folder patroni)}"; }

patroni_is_there() { "$(patroni_folder)/bin/patroni" --version 2>/dev/null | grep -qwF "$PATRONI_VERSION"; }

# The server's user runs it. Debian's Patroni is older and loses acknowledged commits if an agent is
# stopped and continued, so it is PyPI's. The interpreter is the system's: another one may lie where
# that user has no access.
install_patroni() {
    local folder
    folder=$(patroni_folder)
    ! patroni_is_there || return 0
    /usr/bin/python3 -c 'import ensurepip' 2>/dev/null || "$ROOT/script/bootstrap" --patroni || return
    say "installing Patroni $PATRONI_VERSION from PyPI into $folder"
    rm -rf "$folder"
    mkdir -p "$(dirname "$folder")"
    (
        umask 022
        /usr/bin/python3 -m venv "$folder"
        "$folder/bin/pip" install --quiet --disable-pip-version-check \
            "patroni[etcd3,psycopg3]==$PATRONI_VERSION"
    ) >"$WORK/pip.log" 2>&1 || { show_tail 20 "$WORK/pip.log" >&2; rm -rf "$folder"; return 1; }
    patroni_is_there
}

# The programs that a cluster needs and this machine lacks. LACKING names those that can't be
# installed.
LACKING=
prepare_failover() {
    LACKING="etcd (Debian's package etcd-server, or a program in PATH)"
    command -v etcd >/dev/null || "$ROOT/script/bootstrap" --patroni || return
    CHAOS_ETCD=$(command -v etcd) || return
    LACKING="Patroni $PATRONI_VERSION (from PyPI, which needs Debian's package python3-venv)"
    install_patroni || return
    CHAOS_PATRONI=$(patroni_folder)/bin
    LACKING="a Patroni that the server's user can run: $CHAOS_PATRONI is not"
    run_as_postgres "$CHAOS_PATRONI/patroni" --version >/dev/null || return
    CHAOS_FAILOVER=$WORK/failover
    mkdir -p "$CHAOS_FAILOVER"
    install -m 755 "$ROOT"/test/chaos/failover/{proxy,patroni.yml} "$ROOT/test/chaos/scaleout/citus.yml" \
        "$CHAOS_FAILOVER"
    CHAOS_PASSWORD=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
    export CHAOS_ETCD CHAOS_PATRONI CHAOS_FAILOVER CHAOS_PASSWORD PG_BINDIR
}

# With Citus, each worker is such a cluster. Commits that lost their client are settled at once.
FAILOVER_OF=()
with_citus() {
    FAILOVER_BUGS=$ROOT/test/chaos/bugs/failover/citus
    FAILOVER_OF=(--citus)
    FAILOVER_SETTINGS+=(
        citus.recover_2pc_interval=500ms
        citus.node_connection_timeout=5s
        citus.node_conninfo=sslmode=prefer
        citus.enable_statistics_collection=off
    )
}

# failover MODE FOLDER [option...]: one run on a new cluster.
failover() {
    local mode=$1 folder=$2 status=0 settings=() setting
    shift 2
    for setting in "${FAILOVER_SETTINGS[@]}"; do settings+=(--setting "$setting"); done
    chaos "${FAILOVER_OF[@]}" --patroni "$mode" --folder "$folder" --sessions 8 "${settings[@]}" "$@" ||
        status=$?
    stop_servers_below "$folder"
    ((status == 0)) || keep_cluster_logs "$folder"
    return "$status"
}

# failover_that_counts MODE FOLDER SECONDS [option...]: each time on a new cluster, until a run counts.
failover_that_counts() {
    local mode=$1 folder=$2 seconds=$3 OPTIONS=()
    shift 3
    failover_anew() { rm -rf "$folder" && failover "$mode" "$folder" "$@"; }
    until_it_counts "$seconds" failover_anew "$@" --seconds
}

# shellcheck disable=SC2153 # script/chaos sets SEED, MODES and OPTIONS
run_failover() {
    local mode status worst=0 seed=$SEED
    [[ $seed ]] || seed=$((RANDOM * 32768 + RANDOM + 1))
    for mode in "${MODES[@]}"; do
        status=0
        run_child failover "$mode" "$WORK/$mode" --seed "$seed" \
            --seconds "${SECONDS_EACH:-$((MINUTES * 60 / ${#MODES[@]}))}" "${OPTIONS[@]}" || status=$?
        rm -rf "${WORK:?}/$mode"
        worst=$(worse "$worst" "$status")
    done
    say "seed $seed"
    return "$worst"
}

# keep_cluster_logs FOLDER: the logs of a cluster that has stopped.
keep_cluster_logs() {
    local folder=${KEEP:-$BUILD/chaos} name log
    name=patroni-$(basename "$1")
    mkdir -p "$folder"
    for log in "$1"/*/server.log "$1"/etcd.log; do
        [[ ! -f $log ]] || cp "$log" "$folder/$name-$(basename "$(dirname "$log")")-$(basename "$log")"
    done
}

# ---- planted bugs: of clients and of the cluster's settings; see their heads ----

# Prints one TAP line for each bug of the folder, or for those named.
prove_failover() {
    local file number=0 missed=0 BUGS_FOLDER=$FAILOVER_BUGS
    while read -r file; do
        number=$((number + 1))
        if failover_catches "$file"; then
            echo "ok $number - $(basename "$file" .patch) is caught: $(head_of "$file" Expect)"
        else
            echo "not ok $number - $(basename "$file" .patch) is caught"
            show_tail 40 "$WORK/planted.log"
            missed=$((missed + 1))
        fi
    done < <(bug_files "$@")
    ((missed == 0))
}

# Whether the checker finds the violation named in the bug's head, with three seeds at most.
failover_catches() {
    local file=$1 seed status options
    read -ra options <<<"$(head_of "$file" Options)"
    for seed in '' 2 3; do
        status=0
        rm -rf "$WORK/planted"
        failover "$(head_of "$file" Mode)" "$WORK/planted" "${options[@]}" ${seed:+--seed "$seed"} >"$WORK/planted.log" 2>&1 ||
            status=$?
        ! has_found "$file" "$status" || return 0
    done
    return 1
}
