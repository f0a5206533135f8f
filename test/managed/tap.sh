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

# wait_for QUERY: until it is true, for some minutes at most.
wait_for() {
    local _
    for _ in {1..1200}; do
        [[ $(as postgres -c "$1") != t ]] || return 0
        sleep 0.1
    done
    echo "# waited in vain for: $1"
}

# session NUMBER ISOLATION: a client of the load. It gets each of KEYS keys twice, beside the others, and writes into
# app.effects. Its errors are in $folder.
KEYS=250
session() {
    local key
    for key in $(seq "$KEYS" && seq "$KEYS"); do
        cat <<SQL
\\set go false
BEGIN ISOLATION LEVEL $2;
SELECT outcome = 'execute' AS go FROM idem_begin('k$key', '{"n": $key}', scope => 'load') \\gset
\\if :go
INSERT INTO app.effects VALUES ('k$key');
SELECT idem_complete('k$key', 200, 'done $key', scope => 'load') \\gset
\\endif
COMMIT;
SQL
    done | as managed_app -v VERBOSITY=verbose >"$folder/session$1" 2>&1
}

# errors_of_sessions: as comments of TAP.
errors_of_sessions() {
    grep -ho 'ERROR:  [0-9A-Z]*: .*' "$folder"/session* | grep -v 'current transaction is aborted' |
        sed 's/"[^"]*"/"..."/' | sort | uniq -c | sed 's/^/# /'
}

done_testing() {
    echo "1..$number"
    ((failed == 0))
}
