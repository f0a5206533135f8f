# The group private: runs the scripts in a folder that only its owner may enter, as each available
# kind of user, and checks that they leave the machine's own server unchanged.
# shellcheck shell=bash

group_private() {
    local folder user
    server_files >"$WORK/server-files"
    # The work folder belongs to the server's user, who must not be able to enter the checkout.
    folder=$(mktemp -d /tmp/idem.XXXXXX)
    # shellcheck disable=SC2064 # this folder
    trap "rm -rf '$folder'" EXIT
    mkdir -m 700 "$folder/home"
    mkdir -m 1777 "$folder/tmp"
    chmod 711 "$folder"
    copy_sources "$folder/home/checkout"
    for user in $(users_at_hand); do
        chown -R "$user:" "$folder/home"
        check "a clone in a folder of ${user}'s alone: the SQL tests pass" \
            as_user "$user" "$folder" script/test regress
        check "a clone in a folder of ${user}'s alone: chaos runs" \
            chaos_runs "$user" "$folder"
    done
    check "nothing is left of these runs" is_empty "$folder/tmp"
    check "the files of the machine's own server are as they were" server_files_are_the_same
    ((CHECKS_FAILED == 0))
}

# The users that exist without creating any.
users_at_hand() {
    id -un
    ((EUID != 0)) || echo nobody
}

# as_user USER FOLDER command...: in the checkout there, built by the first user.
as_user() {
    local user=$1 folder=$2 become=()
    shift 2
    [[ $user == "$(id -un)" ]] ||
        become=(setpriv "--reuid=$user" "--regid=$(id -g "$user")" --clear-groups
            env "HOME=$folder/home" "USER=$user" "LOGNAME=$user")
    (cd "$folder/home/checkout" && TMPDIR=$folder/tmp "${become[@]}" "$@")
}

# Two sessions without faults: the run does not count and says so. Finding more is the task of the
# group chaos.
chaos_runs() {
    local status=0
    as_user "$1" "$2" script/chaos --scenario mixed --seconds 3 --faults none \
        --sessions 2 --keys 50 || status=$?
    ((status == 3 || status == 5)) # 5: the clock went back
}

is_empty() { ! find "$1" -mindepth 1 -maxdepth 2 | grep .; }

# Also their owners, number of links, and time of last change.
server_files() {
    local option
    for option in --bindir --pkglibdir --sharedir --includedir-server --sysconfdir; do
        find "$("$PG_CONFIG" "$option")" -printf '%p %y %m %U:%G %n %s %C@\n' 2>/dev/null || true
    done | LC_ALL=C sort
}

server_files_are_the_same() { diff "$WORK/server-files" <(server_files); }
