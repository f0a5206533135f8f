# The group private: the scripts in a folder that nobody but its owner may enter, as each kind of user
# that there is, and what they leave of the machine's own server.
# shellcheck shell=bash

group_private() {
    local folder user
    server_files >"$WORK/server-files"
    # The work folder is the server's user's, which is one of those who must not get in.
    folder=$(mktemp -d /tmp/idem.XXXXXX)
    # shellcheck disable=SC2064 # this folder
    trap "rm -rf '$folder'" EXIT
    copy_sources "$folder/checkout"
    for user in $(users_at_hand); do
        chown -R "$user:" "$folder"
        check "a clone in a folder of ${user}'s alone: the SQL tests pass" \
            as_user "$user" "$folder" script/test regress
        check "a clone in a folder of ${user}'s alone: chaos breaks no promise" \
            chaos_runs "$user" "$folder"
    done
    check "the files of the machine's own server are as they were" server_files_are_the_same
    ((CHECKS_FAILED == 0))
}

# Who can be had without making anybody up.
users_at_hand() {
    id -un
    ((EUID != 0)) || echo nobody
}

# as_user USER FOLDER command...: in the checkout there, built by whoever was first.
as_user() {
    local user=$1 folder=$2 become=()
    shift 2
    ((EUID != 0)) || [[ $user == root ]] ||
        become=(setpriv "--reuid=$user" "--regid=$(id -g "$user")" --clear-groups
            env "HOME=$folder" "USER=$user" "LOGNAME=$user")
    (cd "$folder/checkout" && "${become[@]}" "$@")
}

# Whether the few seconds' faults hit anything is for the group chaos to say.
chaos_runs() {
    local status=0
    as_user "$1" "$2" script/chaos --scenario mixed --seconds 5 \
        --faults cancel,terminate || status=$?
    ((status == 0 || status == 3))
}

# Also who owns them and how many links they have, and when that last changed.
server_files() {
    local option
    for option in --bindir --pkglibdir --sharedir --includedir-server --sysconfdir; do
        find "$("$PG_CONFIG" "$option")" -printf '%p %y %m %U:%G %n %s %C@\n' 2>/dev/null || true
    done | LC_ALL=C sort
}

server_files_are_the_same() { diff "$WORK/server-files" <(server_files); }
