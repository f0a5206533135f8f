# What the tests of this folder share: TAP, and sessions. DATABASE is the database.
# shellcheck shell=bash

PSQL=${PG_BINDIR:+$PG_BINDIR/}psql
number=0 failed=0

# as ROLE [arguments of psql]
as() { "$PSQL" -XqAt -d "$DATABASE" -U "$@" 2>&1; }

# is DESCRIPTION EXPECTED FOUND
is() {
    number=$((number + 1))
    if [[ $2 == "$3" ]]; then
        echo "ok $number - $1"
    else
        echo "not ok $number - $1"
        printf '    expected: %.2000s\n    found: %.2000s\n' "$2" "$3"
        failed=$((failed + 1))
    fi
}

isnt() { if [[ $2 != "$3" ]]; then is "$1" "" ""; else is "$1" "another" "the same"; fi; }

# has DESCRIPTION PIECE TEXT
has() { if [[ $3 == *"$2"* ]]; then is "$1" "" ""; else is "$1" "... $2 ..." "$3"; fi; }

# fresh_database NAME OWNER: with the roles of the tests.
fresh_database() {
    local role
    for role in managed_owner managed_app managed_nobody managed_reader; do
        "$PSQL" -Xq -d postgres -c "DO \$\$ BEGIN CREATE ROLE $role LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END \$\$"
    done
    "$PSQL" -Xq -d postgres -c "DROP DATABASE IF EXISTS $1 WITH (FORCE)" -c "CREATE DATABASE $1 OWNER $2" 2>/dev/null
}

# wait_for QUERY: until it is true, 10 seconds at most.
wait_for() {
    local _
    for _ in {1..100}; do
        [[ $(as postgres -c "$1") != t ]] || return 0
        sleep 0.1
    done
    echo "# waited in vain for: $1"
}

done_testing() {
    echo "1..$number"
    ((failed == 0))
}
