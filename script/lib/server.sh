# Throw-away servers: each lives in the work folder, listens only on a Unix socket there, and trusts
# every user who reaches that socket.
# shellcheck shell=bash

# Losing a test server's data costs nothing, so tests do not wait for the disk. Tests of crashes
# and durability bring servers of their own: see test/tap/.
# shellcheck disable=SC2034 # for the scripts that source this
TEST_SETTINGS=(fsync=off synchronous_commit=off full_page_writes=off)

# start_cluster NAME [setting=value ...]: a fresh cluster, running, and libpq pointed at it.
start_cluster() {
    local dir=$WORK/$1
    shift
    run_as_postgres mkdir "$dir"
    run_as_postgres "$PG_BINDIR/initdb" --no-sync -A trust -U postgres --encoding=UTF8 \
        --locale=C -D "$dir/data" >"$WORK/initdb.log" 2>&1 ||
        { show_tail 40 "$WORK/initdb.log"; die "initdb failed"; }
    write_settings "$dir" "$@" | run_as_postgres tee -a "$dir/data/postgresql.conf" >/dev/null
    run_as_postgres "$PG_BINDIR/pg_ctl" start --silent --wait -D "$dir/data" -l "$dir/server.log" \
        >/dev/null 2>&1 || { show_tail 40 "$dir/server.log"; die "the server did not start"; }
    export PGHOST=$dir PGPORT=65432 PGUSER=postgres PGDATABASE=postgres
}

write_settings() {
    local dir=$1
    shift
    cat <<CONF
listen_addresses = ''
port = 65432
unix_socket_directories = '$dir'
max_connections = 200
max_prepared_transactions = 10
log_line_prefix = '%m [%p] %q%a '
CONF
    # The edition without C has nothing to load.
    printf '%s\n' "$@" | if [[ ${IDEM_EDITION:-module} == managed ]]; then grep -v '^shared_preload_libraries'; else cat; fi
}

stop_cluster() {
    run_as_postgres "$PG_BINDIR/pg_ctl" stop --silent --wait -m fast -D "$WORK/$1/data"
}

# create_database NAME: with the extension in it, and libpq pointed at it.
create_database() {
    "$PG_BINDIR/createdb" "$1"
    export PGDATABASE=$1
    "$PG_BINDIR/psql" -Xq -v ON_ERROR_STOP=1 -c 'CREATE EXTENSION idempotency'
}

# Stops every server whose data lies below a folder, including the TAP tests' own. A server works in
# its data folder; one that has just been forked, in ours.
stop_servers_below() {
    local pids _
    for _ in {1..50}; do
        mapfile -t pids < <(processes_below "$1")
        ((${#pids[@]})) || return 0
        kill -QUIT "${pids[@]}" 2>/dev/null
        kill -CONT "${pids[@]}" 2>/dev/null # one that is stopped does not end otherwise
        sleep 0.1
    done
    kill -KILL "${pids[@]}" 2>/dev/null
    return 0
}

processes_below() {
    local link
    for link in /proc/[0-9]*/cwd; do
        [[ $(readlink "$link" 2>/dev/null)/ != "$1"/* ]] || basename "${link%/cwd}"
    done
}
