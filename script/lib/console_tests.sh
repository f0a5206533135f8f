# The group console: script/console in a browser.
# shellcheck shell=bash

group_console() {
    local missing status=0
    missing=$(console_tests_need) || { skip console "it needs $missing"; return; }
    obtain node console install_console console-tests || return 0
    prepare_console_tests
    "$CONSOLE/tests/run" "$@" || status=$?
    ((status == 0)) || show_tail 60 "$WORK/clients/server.log"
    stop_cluster clients || true
    return "$status"
}

console_tests_need() {
    local program
    console_needs || return
    for program in chromium chromium-browser google-chrome; do
        CHROMIUM=$(command -v "$program") && return
    done
    if can_be_root && command -v apt-get >/dev/null; then
        "$ROOT/script/bootstrap" --console >&2 && CHROMIUM=$(command -v chromium) && return
    fi
    echo "Chromium (Debian's package chromium)."
    return 1
}

# Packages, a server that is reached by TCP and asks one role for a password, and a way to stop it.
prepare_console_tests() {
    ensure_installed
    install_console console-tests
    [[ -z ${PICTURES:-} ]] || PICTURES=$(realpath -m "$PICTURES")
    rm -rf "$CONSOLE/tests"
    cp -R "$ROOT/test/console" "$CONSOLE/tests"
    start_clients_cluster
    ask_for_passwords
    CHROMIUM=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
    export CHROMIUM SCRIPT=$ROOT/script/console CONTROL=$WORK/control SERVER_LOG=$WORK/clients/server.log WORK
    export PGUSER=postgres PGDATABASE=postgres
    write_control
}

ask_for_passwords() {
    local rules=$WORK/clients/data/pg_hba.conf
    run_as_postgres sed -i '1i host all locked 127.0.0.1/32 scram-sha-256' "$rules"
    run_as_postgres "$PG_BINDIR/pg_ctl" reload --silent -D "$WORK/clients/data"
}

# control start | stop | standby FOLDER PORT | stop_standby FOLDER
write_control() {
    cat >"$CONTROL" <<SCRIPT
#!/usr/bin/env bash
set -euo pipefail
cd $(printf %q "$WORK")
as_postgres() { $(printf '%q ' "${AS_POSTGRES[@]}")"\$@"; }
start() { as_postgres "$PG_BINDIR/pg_ctl" start --silent --wait -D "\$1/data" -l "\$1/server.log" >/dev/null 2>&1; }
stop() { as_postgres "$PG_BINDIR/pg_ctl" stop --silent --wait -m immediate -D "\$1/data"; }
case \$1 in
    start) start "$WORK/clients" ;;
    stop) stop "$WORK/clients" ;;
    standby)
        as_postgres mkdir "\$2"
        as_postgres "$PG_BINDIR/pg_basebackup" -h "\$PGHOST" -p "\$PGPORT" -U postgres -D "\$2/data" -R -c fast --no-sync
        { echo "port = \$3"; echo "unix_socket_directories = '\$2'"; } | as_postgres tee -a "\$2/data/postgresql.conf" >/dev/null
        start "\$2" ;;
    stop_standby) stop "\$2" ;;
esac
SCRIPT
    chmod +x "$CONTROL"
}
