# A Citus cluster of throw-away servers on this machine: a coordinator and workers, each started as
# in script/lib/server.sh, that reach each other only through their Unix sockets.
# shellcheck shell=bash

COORDINATOR=coordinator

mapfile -t CITUS_SETTINGS <"$ROOT/test/scale/node.conf"

# In the copy of the server from which nodes start.
citus_is_installed() {
    ensure_installed
    [[ -e $("$OUR_CONFIG" --sharedir)/extension/citus.control ]]
}

without_citus() { echo "the extension citus is not installed for the server of $PG_CONFIG"; }

# start_citus WORKERS [setting=value ...]: the coordinator and worker1, worker2, ..., with the
# extension on all of them, and libpq pointed at the coordinator.
start_citus() {
    local workers=$1 number
    shift
    start_citus_node "$COORDINATOR" "$@"
    ask_node "$COORDINATOR" "SELECT citus_set_coordinator_host('$WORK/$COORDINATOR', 65432)"
    for ((number = 1; number <= workers; number++)); do
        start_citus_node "worker$number" "$@"
        join_citus "worker$number"
    done
    ask_node "$COORDINATOR" 'CREATE EXTENSION idempotency'
    point_at "$COORDINATOR"
}

# start_citus_node NAME [setting=value ...]: in the folder of that name, not yet in the cluster.
start_citus_node() {
    start_cluster "$1" "${TEST_SETTINGS[@]}" "${CITUS_SETTINGS[@]}" "citus.local_hostname='$WORK/$1'" \
        "${@:2}"
    ask_node "$1" 'CREATE EXTENSION citus'
}

# A node is known by the folder of its socket.
join_citus() { ask_node "$COORDINATOR" "SELECT citus_add_node('$WORK/$1', 65432)"; }

# point_at NAME: libpq.
point_at() { export PGHOST=$WORK/$1 PGPORT=65432 PGUSER=postgres PGDATABASE=postgres; }

# ask_node NAME SQL
ask_node() { (point_at "$1" && "$PG_BINDIR/psql" -XqAt -v ON_ERROR_STOP=1 -c "$2"); }

# The nodes that were started, the coordinator first.
citus_nodes() {
    local data
    for data in "$WORK/$COORDINATOR" "$WORK"/worker*; do
        [[ ! -d $data/data ]] || basename "$data"
    done
}

node_runs() { run_as_postgres "$PG_BINDIR/pg_ctl" status -D "$WORK/$1/data" >/dev/null 2>&1; }

# The coordinator last: it heals what workers leave behind.
stop_citus() {
    local node
    for node in $(citus_nodes | tac); do
        ! node_runs "$node" || stop_cluster "$node"
    done
}
