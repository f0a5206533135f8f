# Sourced by every script here: strict mode, progress, the work folder, and users.
# shellcheck shell=bash
set -euo pipefail

# The server's user reads files of root's, whatever the caller's umask. The work folder is its own.
umask 022

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
WORK=   # this run's folder, made by make_work_folder and gone when the run ends
CHILD=  # leader of the process group that run_child started

# shellcheck source=script/lib/server.sh
source "$ROOT/script/lib/server.sh"
# shellcheck source=script/lib/build.sh
source "$ROOT/script/lib/build.sh"
# shellcheck source=script/lib/installation.sh
source "$ROOT/script/lib/installation.sh"

# Progress goes to stderr, so that a script's own output stays clean.
say() { printf '[%4ds] %s\n' "$SECONDS" "$*" >&2; }

die() {
    say "error: $*"
    exit 1
}

# Indents a part of a log, so that no line of it looks like a test result.
show_tail() {
    local lines=$1 file=$2
    [[ -s $file ]] || return 0
    printf '    ---- %s (last %d lines)\n' "${file#"$WORK/"}" "$lines"
    tail -n "$lines" "$file" | sed 's/^/    | /'
}

# ---- users ----

# The commands to prefix where privileges matter. The server refuses to run as root, so root steps
# down to `postgres`; any other user runs it directly.
AS_ROOT=()
AS_POSTGRES=()
find_privileges() {
    if ((EUID == 0)); then
        local user=postgres
        getent passwd "$user" >/dev/null || user=nobody
        AS_POSTGRES=(setpriv "--reuid=$user" "--regid=$(id -g "$user")" --init-groups
            env "HOME=${WORK:-/}" "USER=$user" "LOGNAME=$user")
    elif sudo -n true 2>/dev/null; then
        AS_ROOT=(sudo -n)
    fi
}

can_be_root() { ((EUID == 0 || ${#AS_ROOT[@]})); }

# In a folder that the other user may enter, unlike perhaps the caller's.
run_as_postgres() { (cd "${WORK:-/}" && exec "${AS_POSTGRES[@]}" "$@"); }

# The caller's libpq settings must not lead a test to another server.
forget_libpq_settings() {
    local name
    for name in $(compgen -e PG); do
        [[ $name == PG_CONFIG ]] || unset "$name"
    done
    unset MAKEFLAGS MFLAGS MAKELEVEL
}

# Seconds after which a wait fails: a limit for hangs, not for a slow machine. Those of pg_ctl and
# of the server's own Perl modules.
be_patient() {
    export PGCTLTIMEOUT=600 PG_TEST_TIMEOUT_DEFAULT=360
}

# ---- folders ----

# The path of a Unix socket has at most 107 bytes, so a long TMPDIR gives way to /tmp or /var/tmp.
# So does one that the server's user may not enter, or whose programs no user may run.
make_work_folder() {
    trap clean_up EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    local base
    for base in "${TMPDIR:-/tmp}" /tmp /var/tmp; do
        ((${#base} <= 60)) || continue
        WORK=$(mktemp -d "$base/idem.XXXXXX") || continue
        find_privileges
        hand_over "$WORK"
        can_work_there 2>/dev/null && return
        rm -rf "$WORK"
    done
    WORK=
    die "no folder for temporary files: ${TMPDIR:-/tmp}, /tmp and /var/tmp can't be used"
}

# Whether the server's user may write there and run programs.
can_work_there() {
    printf '#!/bin/sh\n' >"$WORK/program"
    chmod 755 "$WORK/program"
    run_as_postgres test -w "$WORK" && run_as_postgres "$WORK/program" && rm "$WORK/program"
}

# Gives root's files to the user that runs the server.
hand_over() {
    ((EUID == 0)) || return 0
    chown -R "$(run_as_postgres id -u):$(run_as_postgres id -g)" "$@"
}

# Runs at every end of a script, also after an error or Ctrl-C, and leaves nothing running. Output
# has ended by then: the last line on the screen belongs to the script.
clean_up() {
    local status=$?
    trap '' HUP INT TERM
    set +e
    stop_child
    [[ -n $WORK ]] && stop_servers_below "$WORK" && rm -rf "$WORK"
    exit "$status"
}

# cache_folder NAME: where software installed for tests stays for the next run: the machine's cache,
# or the user's.
cache_folder() {
    if ((EUID == 0)); then echo "/var/cache/idempotency/$1"; else echo "${XDG_CACHE_HOME:-$HOME/.cache}/idempotency/$1"; fi
}

# ---- commands ----

# Runs a command or function in its own process group, for at most $TIME_LIMIT seconds, and reacts
# to signals meanwhile. Call it bare: behind `if` or `||` bash ignores `set -e` in it.
run_child() {
    local status=0 deadline=$((SECONDS + ${TIME_LIMIT:-86400}))
    set -m
    (set +m -e; trap - EXIT HUP INT TERM; "$@") </dev/null &
    CHILD=$!
    set +m
    while kill -0 "$CHILD" 2>/dev/null; do
        if ((SECONDS > deadline)); then
            say "stopped: still running after $TIME_LIMIT seconds"
            stop_child
        fi
        sleep 0.1
    done
    wait "$CHILD" || status=$?
    CHILD=
    return "$status"
}

# Servers are not in the group, so its processes end quickly.
stop_child() {
    [[ -n $CHILD ]] || return 0
    kill -TERM -- "-$CHILD" 2>/dev/null || return 0
    sleep 0.5
    kill -KILL -- "-$CHILD" 2>/dev/null || true
}

# Copies the output of a function to a file.
logged() {
    local log=$1
    shift
    set +e
    (set -e; "$@") 2>&1 | tee "$log"
    return "${PIPESTATUS[0]}"
}
