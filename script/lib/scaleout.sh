# Servers with Citus for script/chaos --citus, and running it.
# shellcheck shell=bash

# More settings of every node of a cluster. Recovery, cleaning and sweeping never rest.
SCALEOUT_SETTINGS=(
    idempotency.cleanup_interval=1s
    idempotency.cleanup_grace=0
    fsync=off
    full_page_writes=off
    deadlock_timeout=100ms
    autovacuum_naptime=1s
    client_min_messages=warning
    shared_buffers=16MB
    citus.recover_2pc_interval=500ms
    citus.defer_shard_delete_interval=500ms
    citus.node_connection_timeout=10s
)

# start_nodes FOLDER [setting=value ...]: four servers that do not know each other yet.
start_nodes() {
    local folder=$1 name nodes=()
    shift
    run_as_postgres mkdir "$WORK/$folder"
    for name in "$COORDINATOR" worker{1,2,3}; do
        start_cluster "$folder/$name" "${CITUS_SETTINGS[@]}" "${SCALEOUT_SETTINGS[@]}" \
            "citus.local_hostname='$WORK/$folder/$name'" "$@"
        nodes+=("$WORK/$folder/$name")
    done
    export CHAOS_CITUS="${nodes[*]}" PG_BINDIR
}

# scaleout FOLDER [option...]: one run on a new cluster.
scaleout() {
    local folder=$1 status=0
    shift
    (start_nodes "$folder" "${SET[@]}" && chaos --citus --sessions 12 "$@") || status=$?
    ((status == 0 || status == 3)) || keep_node_logs "$folder"
    stop_servers_below "$WORK/$folder"
    rm -rf "${WORK:?}/$folder"
    return "$status"
}

# shellcheck disable=SC2153 # script/chaos sets SEED and OPTIONS
run_scaleout() {
    local seed=$SEED status=0
    [[ $seed ]] || seed=$((RANDOM * 32768 + RANDOM + 1))
    until_it_counts "${SECONDS_EACH:-$((MINUTES * 60))}" \
        run_child scaleout nodes --seed "$seed" "${OPTIONS[@]}" --seconds || status=$?
    say "seed $seed"
    return "$status"
}

keep_node_logs() {
    local folder=${KEEP:-$BUILD/chaos} node
    mkdir -p "$folder"
    for node in "$WORK/$1"/*; do
        [[ ! -f $node/server.log ]] || cp "$node/server.log" "$folder/citus-$(basename "$node").log"
    done
}

# ---- planted bugs of a cluster ----

# run_planted_nodes FILE [option...]: as run_planted, on a cluster.
run_planted_nodes() {
    local file=$1 status=0 settings
    shift
    read -ra settings <<<"$(head_of "$file" Settings)"
    (
        start_nodes planted-nodes "${settings[@]}"
        run_as_postgres "$(chaos_program)" --citus --sessions 12 "$@"
    ) >"$WORK/planted.log" 2>&1 || status=$?
    stop_servers_below "$WORK/planted-nodes"
    rm -rf "$WORK/planted-nodes"
    has_found "$file" "$status"
}
