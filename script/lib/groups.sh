# The groups of tests. Each is a function that runs in a separate process, with `set -e`, and prints
# lines that count.awk can count. A failed group shows its evidence.
# shellcheck shell=bash

# shellcheck disable=SC2034 # for script/test
GROUPS_IN_ORDER=(checks build build-in-tree core model fuzz regress isolation tap client regress-sql
    isolation-sql tap-sql client-sql scale scale-sql docs examples demo chaos)
GROUPS_ON_REQUEST=(managed managed-client managed-conformance managed-docs managed-demo private lint clients client-cpp newer-ruby packages console dotnet upgrade failover clang release images)
# The groups that need no more than the module does.
GROUPS_OF_MODULE=(checks build build-in-tree regress isolation upgrade clang release images)

# ---- our own checks, printed as TAP ----

CHECKS=0
CHECKS_FAILED=0

# check DESCRIPTION command...
check() {
    local description=$1 result=ok
    shift
    CHECKS=$((CHECKS + 1))
    ("$@") >"$WORK/check.log" 2>&1 || { result='not ok'; CHECKS_FAILED=$((CHECKS_FAILED + 1)); }
    echo "$result $CHECKS - $description"
    [[ $result == ok ]] || show_tail 60 "$WORK/check.log"
}

# skip DESCRIPTION REASON: what a check would need.
skip() {
    CHECKS=$((CHECKS + 1))
    echo "ok $CHECKS - $1 # SKIP $2"
}

group_checks() {
    check "core knows no server header" "$ROOT/test/check_layers" core
    check "server headers enter through src/pg/ alone" "$ROOT/test/check_layers" prelude
    check "every layer includes only layers below it" "$ROOT/test/check_layers" layers
    check "no file includes itself by way of others" "$ROOT/test/check_layers" cycles
    check "only src/pg/compat distinguishes server versions" "$ROOT/test/check_layers" versions
    check "only src/pg/citus names what is Citus's" "$ROOT/test/check_layers" citus
    check "the checks of the layers see what breaks them" "$ROOT/test/check_layers_test"
    check "every regression test has its expected output, and the reverse" \
        "$ROOT/test/check_schedule" regress
    check "every isolation spec has its expected output, and the reverse" \
        "$ROOT/test/check_schedule" isolation
    check "one version everywhere, a way to it from each older one, a META.json that PGXN takes" \
        "$ROOT/test/check_versions"
    check "files that name the maintainer name the one of release.conf" "$ROOT/script/release" --same
    check "a release is refused while its publisher is a placeholder" "$ROOT/test/release_test"
    check "links of the packaged documents lead somewhere, and the package's test sees those that do not" \
        "$ROOT/test/documents_test"
    # A checkout without history makes no release.
    [[ ! -e $ROOT/.git ]] ||
        check "a release has the same bytes whenever and wherever it is made" releases_are_equal
    check "where packages come from is left to the machine's settings" "$ROOT/test/check_hosts"
    check "its check sees what names a mirror or registry" "$ROOT/test/check_hosts_test"
    check "promises of docs/reliability.md and docs/security.md name existing tests, and excerpts match their files" \
        "$ROOT/test/check_promises"
    check "the tables of docs/scaling/plan.md are those of its script" "$ROOT/test/plan_test"
    check "files and functions that documents and comments name are there, and none is listed twice" \
        "$ROOT/test/check_names"
    check "its check finds stale names" "$ROOT/test/check_names_test"
    check "functions of claim, store, api and operate are as long as paragraphs" \
        "$ROOT/test/check_functions"
    check "the counter of functions sees those that are too long, and too many that are short" \
        "$ROOT/test/check_functions_test"
    check "the clients' statements, documents and defaults are those of their contract" \
        "$ROOT/clients/contract/generate" --check
    check "the conformance suite runs again what failed beside others, and no wrong effect" \
        "$ROOT/clients/conformance/run_test"
    check "a package's own tests are run again where they failed beside a suite, and not where they failed alone" \
        "$ROOT/test/run_again_test"
    check "the conformance suite's proxy counts no wait of a client that sends more before the answer" \
        "$ROOT/clients/conformance/proxy_test"
    check "the code of docs/drivers/ is that of the drivers' programs" "$ROOT/clients/drivers/check" code
    check "monitoring/dashboard.json is what monitoring/generate writes" "$ROOT/monitoring/generate" --check
    check "managed/idempotency.sql is what managed/generate writes" "$ROOT/managed/generate" --check
    check "a server without the paths of its files is not copied" silent_server_is_not_copied
    check "Citus is looked for in the copy of the server, not in the machine's" citus_of_the_copy
    check "a machine without the tools of the languages skips their tests, and says what is missing" \
        "$ROOT/test/without_tools"
    ((CHECKS_FAILED == 0))
}

# Its folders would be empty words, and a copy of them would be a copy of the whole machine.
silent_server_is_not_copied() {
    mkdir -p "$WORK/silent"
    printf '#!/bin/sh\n[ "$1" = --bindir ] && echo /nowhere\n' >"$WORK/silent/pg_config"
    chmod +x "$WORK/silent/pg_config"
    PG_CONFIG=$WORK/silent/pg_config
    use_installation "$WORK/silent/copy"
    cp() { touch "$WORK/silent/copied"; }
    copy_installation && return 1
    [[ ! -e $WORK/silent/copied ]]
}

citus_of_the_copy() {
    local server
    for server in machine copy; do
        mkdir -p "$WORK/citus-of/$server/extension"
        printf '#!/bin/sh\necho %s\n' "$WORK/citus-of/$server" >"$WORK/citus-of/$server/pg_config"
        chmod +x "$WORK/citus-of/$server/pg_config"
    done
    INSTALLED=$WORK/citus-of PG_CONFIG=$WORK/citus-of/machine/pg_config OUR_CONFIG=$WORK/citus-of/copy/pg_config
    touch "$INSTALLED/complete" "$WORK/citus-of/machine/extension/citus.control"
    ! citus_is_installed || return
    touch "$WORK/citus-of/copy/extension/citus.control"
    citus_is_installed
}

releases_are_equal() {
    local file
    mkdir "$WORK/dist-1" "$WORK/dist-2"
    (umask 022 && TZ=UTC0 make_in "$WORK/dist-1" "$ROOT" dist) || return
    sleep 1.1
    (umask 077 && TZ=XYZ-9 LC_ALL=C make_in "$WORK/dist-2" "$ROOT" dist) || return
    for file in "$WORK"/dist-1/idempotency-*.{zip,tar.gz}; do
        cmp "$file" "${file/dist-1/dist-2}" || return
    done
    tar -tzf "$WORK"/dist-1/*.tar.gz | grep -c >/dev/null '^idempotency-[0-9.]*/Makefile$'
}

# ---- the module ----

group_build() {
    rm -rf "$(module_folder)"
    check "the module builds out of tree, with bitcode where the server has it" \
        builds_silently "$(module_folder)" "$SRC"
    check "a server that was not tested is refused, unless it is asked for" \
        "$ROOT/test/check_server_versions"
    check "the module exports only the symbols that the server looks up" \
        "$ROOT/test/check_exports" "$(module_folder)/idempotency.so"
    ((CHECKS_FAILED == 0))
}

group_build-in-tree() {
    copy_sources "$WORK/in-tree"
    check "the module builds in tree, without bitcode" \
        builds_silently "$WORK/in-tree" "$WORK/in-tree" with_llvm=no
    ((CHECKS_FAILED == 0))
}

# The compiler and the C++ library of macOS and FreeBSD, here on Debian.
group_clang() {
    if ! has_libcxx && ! { "$ROOT/script/bootstrap" --clang && has_libcxx; }; then
        skip clang "there is no clang with libc++"
        return
    fi
    check "clang builds the module without a warning, with the library that GCC has" built_by clang++ libstdc++
    check "clang builds the module without a warning, with libc++" built_by 'clang++ -stdlib=libc++' libc++
    check "pkg-config says where OpenSSL is" openssl_is_found
    MODULE_FOLDER=$BUILD/clang-libc++
    MAKE_OPTIONS+=(with_llvm=no CC=clang 'CXX=clang++ -stdlib=libc++')
    group_regress || return
    ((CHECKS_FAILED == 0))
}

has_libcxx() { clang++ -stdlib=libc++ -include cstddef -x c++ -E /dev/null >/dev/null 2>&1; }

# built_by COMPILER LIBRARY: which is the only C++ library that the module loads.
built_by() {
    builds_silently "$BUILD/clang-$2" "$SRC" with_llvm=no CC=clang CXX="$1" || return
    [[ $(readelf -d "$BUILD/clang-$2/idempotency.so" | sed -nE 's/.*\[(libc\+\+|libstdc\+\+)\.so.*/\1/p') == "$2" ]]
}

# A libcrypto in a folder that the compiler does not know by itself.
openssl_is_found() {
    local folder=$WORK/openssl
    mkdir -p "$folder"
    printf '%s\n' 'Name: libcrypto' 'Description: elsewhere' 'Version: 3' 'Libs: -L/elsewhere/lib -lcrypto' \
        'Cflags: -I/elsewhere/include' >"$folder/libcrypto.pc"
    PKG_CONFIG_PATH=$folder make_in "$folder" "$SRC" --dry-run with_llvm=no >"$folder/commands" || return
    grep -q -- '-c .*-I/elsewhere/include\|-I/elsewhere/include .*-c ' "$folder/commands" && grep -q -- '-L/elsewhere/lib -lcrypto' "$folder/commands"
}

# builds_silently FOLDER TREE [make arguments]: also without a warning.
builds_silently() {
    make_in "$@" -j "$(nproc)" || return
    [[ -f $1/idempotency.so ]] || return
    ! grep -q 'warning:' "$WORK/check.log"
}

# ---- without a server ----

group_core() {
    ensure_cmake_built
    run_ctest core --parallel "$(nproc)"
}

# run_ctest LABEL [ctest arguments]
run_ctest() {
    local label=$1
    shift
    ctest --test-dir "$BUILD/cmake" -L "^$label\$" --no-tests=error --output-on-failure \
        --timeout 900 "$@"
}

# Every history of three callers and one key, and whether the model finds planted mistakes.
group_model() {
    "$ROOT/test/model/run"
}

# ---- random input ----

# The core's parsers, and every SQL function; the same inputs each time. script/deep runs it at
# length.
group_fuzz() {
    ensure_fuzzers_built
    local status=0
    run_fuzzers || status=$?
    fuzz_functions
    return "$status"
}

ensure_fuzzers_built() {
    quietly "configuring the fuzzers" cmake -S "$SRC/test/fuzz" -B "$BUILD/fuzz" \
        -DCMAKE_CXX_COMPILER=clang++
    quietly "building the fuzzers" cmake --build "$BUILD/fuzz" --parallel "$(nproc)"
}

run_fuzzers() {
    ctest --test-dir "$BUILD/fuzz" --no-tests=error --output-on-failure --timeout 900 \
        --parallel "$(nproc)"
}

# fuzz_functions [arguments of test/fuzz/sql/run]: preloaded, so that the functions of the
# statistics succeed.
fuzz_functions() {
    ensure_installed
    TEST_SETTINGS+=(shared_preload_libraries=idempotency)
    start_test_cluster fuzz
    local status=0
    "$ROOT/test/fuzz/sql/run" "$@" || status=$?
    ! grep -E 'TRAP:|PANIC:|terminated by signal' "$WORK/fuzz/server.log" || status=1
    ((status == 0)) || show_tail 60 "$WORK/fuzz/server.log"
    stop_cluster fuzz
    return "$status"
}

# ---- with a server ----

group_regress() {
    prepare_server_tests regress
    installcheck regress ISOLATION=
}

group_isolation() {
    prepare_server_tests isolation
    # Specs of behaviour that only the heap store has: with the SQL store they would wait forever.
    [[ ${IDEM_STORE:-auto} != sql ]] || rm "$WORK"/isolation-sources/test/isolation/specs/heap_store_*.spec
    installcheck isolation REGRESS=
}

# prepare_server_tests NAME: installs the module, starts a fresh cluster, and copies the tests to
# where the server's user can read them.
prepare_server_tests() {
    ensure_installed
    copy_sources "$WORK/$1-sources"
    start_test_cluster "$1"
}

# test/server.conf, where it exists, holds settings that the tests need. IDEM_STORE chooses the store.
start_test_cluster() {
    local settings=("${TEST_SETTINGS[@]}" "idempotency.store=${IDEM_STORE:-auto}")
    [[ ! -f $ROOT/test/server.conf ]] || mapfile -t -O "${#settings[@]}" settings <"$ROOT/test/server.conf"
    start_cluster "$1" "${settings[@]}"
}

# installcheck NAME [make arguments]: in the cluster's folder, where the server's user may write.
installcheck() {
    local name=$1 status=0
    shift
    run_as_postgres make -C "$WORK/$name" -f "$WORK/$name-sources/Makefile" --no-print-directory \
        PG_CONFIG="$OUR_CONFIG" installcheck "$@" || status=$?
    if ((status != 0)); then
        show_diffs "$WORK/$name"
        show_tail 60 "$WORK/$name/server.log"
    fi
    stop_cluster "$name"
    return "$status"
}

show_diffs() {
    local file
    while read -r file; do
        show_tail 400 "$file"
        grep -E '^[-+]' "$file" | head -n 20 | sed 's/^/why: /'
    done < <(find "$1" -name regression.diffs)
}

group_tap() {
    ensure_installed
    copy_sources "$WORK/tap-sources"
    run_as_postgres mkdir "$WORK/tap" "$WORK/tap/tmp"
    prove_or_explain "$WORK"/tap-sources/test/tap/*.pl
}

# On a Citus cluster, where the server has Citus.
group_scale() {
    if ! citus_is_installed; then
        skip "clusters" "$(without_citus)"
        return
    fi
    copy_sources "$WORK/tap-sources"
    run_as_postgres mkdir -p "$WORK/tap" "$WORK/tap/tmp"
    prove_or_explain "$WORK"/tap-sources/test/scale/*.pl
}

# From the server in OLD_BINDIR, which has our module, too.
group_upgrade() {
    [[ -x ${OLD_BINDIR:-}/postgres ]] || die "OLD_BINDIR is not the programs of an older server"
    export OLD_BINDIR
    ensure_installed
    copy_sources "$WORK/tap-sources"
    run_as_postgres mkdir "$WORK/tap" "$WORK/tap/tmp"
    prove_or_explain "$WORK"/tap-sources/test/upgrade/*.pl
}

prove_or_explain() {
    local status=0
    prove_all "$@" 2>&1 | tee "$WORK/prove.log" || status=$?
    ((status == 0)) || show_tap_logs
    return "$status"
}

# The server's own Perl modules start the clusters. Their sockets lie below TMPDIR. Tests mostly
# wait, for a lease or a sweeper, so two run per processor. The tests with the longest waits come
# last by name, and begin first.
prove_all() {
    local pgxs files
    pgxs=$(dirname "$("$OUR_CONFIG" --pgxs)")
    mapfile -t files < <(printf '%s\n' "$@" | sort -r)
    run_as_postgres env -C "$WORK/tap" "PATH=$PG_BINDIR:$PATH" "TMPDIR=$WORK/tap/tmp" \
        "PG_REGRESS=$pgxs/../../src/test/regress/pg_regress" "TESTDIR=$WORK/tap" \
        "TESTLOGDIR=$WORK/tap/tmp_check/log" "TESTDATADIR=$WORK/tap/tmp_check" \
        "PG_TEST_PORT_DIR=$WORK/tap/ports" "IDEM_STORE=${IDEM_STORE:-auto}" \
        prove --jobs "$((2 * $(nproc)))" --timer -I "$pgxs/../../src/test/perl" \
        "-I$WORK/tap-sources/test/"{tap,scale,upgrade} "${files[@]}"
}

# The logs of the tests that prove complains about, and of their servers; and why they failed, for
# the end of the run.
show_tap_logs() {
    local name file logs=$WORK/tap/tmp_check/log
    while read -r name; do
        for file in "$logs/"{regress_log_"$name","$name"_*.log}; do
            show_tail 60 "$file"
        done
        awk -f "$ROOT/script/lib/why.awk" "$logs/regress_log_$name" | sed "s/^/why: $name: /"
    done < <(sed -nE 's|^.*/([^/]+)\.pl +\(Wstat.*|\1|p' "$WORK/prove.log")
}

group_client() { # [ctest arguments]
    ensure_installed
    ensure_cmake_built
    start_test_cluster client
    create_database client
    local status=0
    run_ctest client "$@" || status=$?
    ((status == 0)) || show_tail 60 "$WORK/client/server.log"
    stop_cluster client
    return "$status"
}

# The tests of the heap store also pass with the SQL store, with the same output.
# In a folder next to the first run's files.
with_sql_store() {
    export IDEM_STORE=sql WORK=$WORK/sql
    mkdir -p "$WORK"
    hand_over "$WORK"
    "$@"
}
group_regress-sql() { with_sql_store group_regress; }
group_isolation-sql() { with_sql_store group_isolation; }
group_tap-sql() { with_sql_store group_tap; }
group_client-sql() { with_sql_store group_client; }
group_scale-sql() { with_sql_store group_scale; }

# The same tests against the edition without C.
with_managed_edition() {
    export IDEM_EDITION=managed WORK=$WORK/edition
    TEST_SETTINGS+=(idempotency.sweep_beside_calls=0)
    mkdir -p "$WORK"
    hand_over "$WORK"
    use_installation "$WORK/server"
    "$@"
}
# Without the tests of what the module alone has: columns in C, and either store.
group_managed-client() { with_managed_edition group_client --exclude-regex 'columns|stores'; }

group_managed-docs() { with_managed_edition group_docs; }
group_managed-demo() { with_managed_edition group_demo; }

# The conformance suite of one client; script/deep runs it for all.
group_managed-conformance() {
    LANGUAGES=${LANGUAGES:-python}
    with_managed_edition conform
}

conform() {
    local language missing status=0
    ensure_installed
    copy_clients
    start_clients_cluster
    for language in $LANGUAGES; do
        if missing=$("$BUILD/languages/clients/$language/needs"); then
            "$BUILD/languages/clients/conformance/run" "$language" || status=1
        else
            skip "$language" "${missing:-something is missing}"
        fi
    done
    ((status == 0)) || show_tail 60 "$WORK/clients/server.log"
    stop_cluster clients
    return "$status"
}

# Debian's package of pg_cron, unpacked into the copy of the server.
pg_cron_is_there() {
    mkdir -p "$WORK/cron" && cd "$WORK/cron" && timeout 60 apt-get download "postgresql-$(pg_major)-cron" &&
        dpkg -x ./*.deb . && cp -R usr "$INSTALLED"
}

# The edition without C, on a server without the module.
group_managed() {
    ensure_installed
    TEST_SETTINGS+=("autovacuum=off")
    if (pg_cron_is_there) >"$WORK/cron.log" 2>&1; then
        TEST_SETTINGS+=(shared_preload_libraries=pg_cron cron.database_name=managed_cron cron.use_background_workers=on)
        export CRON=1
    fi
    start_cluster managed "${TEST_SETTINGS[@]}"
    local status=0
    PG_BINDIR=$PG_BINDIR "$ROOT/test/managed/run" || status=$?
    ((status == 0)) || show_tail 60 "$WORK/managed/server.log"
    stop_cluster managed
    return "$status"
}

group_docs() {
    ensure_installed
    start_test_cluster docs
    local status=0
    PG_BINDIR=$PG_BINDIR "$ROOT/test/docs_check" || status=$?
    ((status == 0)) || show_tail 60 "$WORK/docs/server.log"
    stop_cluster docs
    return "$status"
}

# The payments service, two processes of it, over real HTTP. Answered payments must survive an
# immediate stop, so commits are durable here.
group_examples() {
    ensure_installed
    ensure_cmake_built
    TEST_SETTINGS+=(synchronous_commit=on)
    start_test_cluster examples
    local status=0
    PAYMENTS_BIN=$BUILD/cmake PGDATA=$WORK/examples/data PG_CTL=$PG_BINDIR/pg_ctl \
        "$ROOT/test/examples/run" || status=$?
    ((status == 0)) || show_tail 60 "$WORK/examples/server.log"
    stop_cluster examples
    return "$status"
}

# Each client with an installed toolchain: its own tests, then the conformance suite against its
# server, then the claims of docs/drivers/ about the language's drivers.
group_clients() {
    ensure_installed
    copy_clients
    start_clients_cluster
    local needs language missing outcome CONFORMING='' CONFORMANCE='' status=0
    for needs in "$BUILD"/languages/clients/*/needs; do
        language=$(basename "$(dirname "$needs")")
        [[ " ${LANGUAGES:-$language} " == *" $language "* ]] || continue
        if missing=$("$needs"); then
            outcome=0
            test_client "$language" || outcome=$?
            end_conformance || status=1
            ((outcome != 3)) || continue
            ((outcome == 0)) || status=1
            begin_conformance "$language"
            [[ ! -d $BUILD/languages/clients/drivers/$language ]] ||
                PG_BINDIR=$PG_BINDIR "$BUILD/languages/clients/drivers/check" "$language" || status=1
        else
            skip "$language" "${missing:-something is missing}"
        fi
    done
    end_conformance || status=1
    ((status == 0)) || show_tail 60 "$WORK/clients/server.log"
    stop_cluster clients
    return "$status"
}

# The C++ client's own tests, for script/matrix: other releases have another libpqxx.
group_client-cpp() {
    ensure_installed
    copy_clients
    local missing status=0
    if ! missing=$("$BUILD/languages/clients/cpp/needs"); then
        skip cpp "$missing"
        return 0
    fi
    echo "# libpqxx $(pkg-config --modversion libpqxx), $(c++ --version | head -n 1)"
    start_clients_cluster
    test_client cpp || status=1
    ((status == 0)) || show_tail 60 "$WORK/clients/server.log"
    stop_cluster clients
    return "$status"
}

# The suite mostly waits: one language's suite runs while the next one compiles, in a separate
# database, and its output is shown when it has ended.
begin_conformance() {
    CONFORMING=$1
    "$BUILD/languages/clients/conformance/run" --servers "$1" >"$WORK/conformance-$1" 2>&1 &
    CONFORMANCE=$!
}

end_conformance() {
    local status=0
    [[ -n $CONFORMING ]] || return 0
    wait "$CONFORMANCE" || status=$?
    cat "$WORK/conformance-$CONFORMING"
    CONFORMING=''
    return "$status"
}

# test_client LANGUAGE: status 3 if its registry does not answer.
test_client() {
    local language=$1 failed=$CHECKS_FAILED outcome=0
    create_database "client_$language"
    check "$language: its statements are those of clients/contract, and no others" \
        "$BUILD/languages/clients/conformance/check_statements" "$language"
    check_with_registry "$language" "$language: the package's own tests" \
        once_more_alone "$language: the package's own tests" timeout --kill-after=10 900 "$BUILD/languages/clients/$language/test" || outcome=$?
    ! cat "$WORK/again" 2>/dev/null || rm "$WORK/again"
    ((outcome == 0)) || return "$outcome"
    ((CHECKS_FAILED == failed))
}

# once_more_alone DESCRIPTION command...: a command that fails beside another language's suite runs once more when that has
# ended, for it may have kept the processors from it. Then $WORK/again has how it failed.
once_more_alone() {
    local description=$1 log=$WORK/beside.log
    shift
    if [[ -z $CONFORMING ]] || ! kill -0 "$CONFORMANCE"; then
        "$@"
    elif ! "$@" >"$log" 2>&1; then
        { echo "# $description is run again: it failed beside others" && show_tail 60 "$log"; } >"$WORK/again"
        tail --pid="$CONFORMANCE" --follow /dev/null
        "$@"
    fi
}

# Ruby's own tests with the packages of Debian 13: Ruby 3.3, Rack 3.1, Rails 7.2. Their root file system is kept. They
# reach the server by TCP.
group_newer-ruby() {
    local what="ruby: the package's own tests with Debian 13's Ruby, Rack and Rails" name=trixie-ruby failed=$CHECKS_FAILED
    ensure_installed
    copy_clients
    start_clients_cluster
    create_database client_ruby
    if make_newer_ruby "$name" >"$WORK/newer_ruby.log" 2>&1; then
        check "$what" in_root "$name" env "PGHOST=$PGHOST" "PGPORT=$PGPORT" "PGUSER=$PGUSER" "PGDATABASE=$PGDATABASE" \
            timeout --kill-after=10 900 /ruby/test
    else
        skip "$what" "they need root, debootstrap and the packages of Debian 13"
    fi
    stop_cluster clients
    ((CHECKS_FAILED == failed))
}

make_newer_ruby() {
    ((EUID == 0)) && "$ROOT/script/bootstrap" matrix && make_root trixie "$1" &&
        install_in_root "$1" ruby ruby-pg ruby-rack puma ruby-minitest ruby-activerecord ruby-actionpack ruby-railties &&
        rm -rf "$ROOTS/$1/ruby" && cp -R "$BUILD/languages/clients/ruby" "$ROOTS/$1/ruby"
}

# check_with_registry LANGUAGE DESCRIPTION command...: as check, but a failure is a skip, with status 3, while the
# language's registry does not answer.
check_with_registry() {
    local outcome=0
    obtain "$@" || outcome=$?
    ((outcome != 0)) || check "$2" true
    ((outcome != 3)) || return 3
}

# obtain LANGUAGE DESCRIPTION command...: whether the command has installed what a check of that description needs. If
# not, the check has failed, or is skipped, with status 3, while the language's registry does not answer.
obtain() {
    local language=$1 description=$2
    shift 2
    if ("$@") >"$WORK/attempt.log" 2>&1; then
        return
    elif registry_answers "$language" >"$WORK/registry.log" 2>&1; then
        check "$description" fail_with "$WORK/attempt.log"
        return 1
    else
        skip "$description" "the registry of the language does not answer"
        return 3
    fi
}

fail_with() {
    cat "$1"
    return 1
}

# Asks for a package that each registry has. Debian's packages are enough for the others.
registry_answers() {
    case $1 in
        node) timeout 60 npm view pg version ;;
        python) timeout 60 python3 -m pip download --quiet --no-deps --no-cache-dir --dest "$WORK/registry" wheel ;;
        go) (cd "$WORK" && timeout 60 go list -m -versions github.com/jackc/pgx/v5) ;;
        rust)
            mkdir -p "$WORK/registry/src"
            touch "$WORK/registry/src/lib.rs"
            printf '%s\n' '[package]' 'name = "registry"' 'version = "0.0.1"' '[dependencies]' 'itoa = "*"' >"$WORK/registry/Cargo.toml"
            (cd "$WORK/registry" && rm -f Cargo.lock && timeout 60 cargo generate-lockfile)
            ;;
        java) timeout 60 mvn --batch-mode --quiet -Dmaven.repo.local="$WORK/registry" dependency:get -Dartifact=org.postgresql:postgresql:42.7.3:pom ;;
        *) true ;;
    esac
}

# copy_clients [FOLDER]: the sources next to the products of the last build: a language's tools put them there.
# The drivers are compared with their pages. The Python client's tests run the recipes.
copy_clients() {
    local list=$WORK/clients.list copy=$BUILD/${1:-languages}
    (cd "$ROOT" && find clients examples/recipes docs/drivers.md docs/drivers -type d \( -name node_modules -o -name dist -o -name target -o -name build \
        -o -name .venv -o -name __pycache__ -o -name '*.egg-info' \) -prune -o -type f -print | LC_ALL=C sort) >"$list"
    mkdir -p "$copy"
    # Files that no longer exist.
    [[ ! -e $copy/sources ]] ||
        LC_ALL=C comm -23 "$copy/sources" "$list" | (cd "$copy" && xargs -r -d '\n' rm -f)
    (cd "$ROOT" && tr '\n' '\0' <"$list" | xargs -0 cp -p --parents -u -t "$copy")
    cp "$list" "$copy/sources"
}

# Some languages do not support Unix sockets.
start_clients_cluster() {
    local name=${1:-clients} port
    port=$(python3 "$ROOT/clients/conformance/suite/ports.py")
    # A language's own tests, and the suite on two servers of another, each with pools.
    TEST_SETTINGS+=("listen_addresses='127.0.0.1'" "port=$port" max_connections=400)
    start_test_cluster "$name"
    export PGHOST=127.0.0.1 PGPORT=$port
}

# Each client's package, built from a copy of its sources whose README has links into the repository, and used
# by a project that has nothing else. They stay in build/packages/clients.
group_packages() {
    ensure_installed
    copy_clients packages/sources
    start_clients_cluster packages
    local package language missing status=0
    for package in "$ROOT"/clients/*/package; do
        language=$(basename "$(dirname "$package")")
        [[ " ${LANGUAGES:-$language} " == *" $language "* ]] || continue
        if missing=$("$ROOT/clients/$language/needs"); then
            pack_client "$language" || status=1
        else
            skip "$language" "${missing:-something is missing}"
        fi
    done
    ((status == 0)) || show_tail 60 "$WORK/packages/server.log"
    stop_cluster packages
    return "$status"
}

# pack_client LANGUAGE
pack_client() {
    local language=$1 failed=$CHECKS_FAILED packages=$BUILD/packages/clients/$1 sources=$BUILD/packages/sources/clients/$1
    create_database "package_$language"
    rm -rf "$packages"
    mkdir -p "$packages"
    check "$language: the links of its README are to files of the repository" absolute_links "$language" "$sources/README.md"
    check_with_registry "$language" "$language: its package is built, and used in an empty project" \
        env CARGO_TARGET_DIR="$BUILD/languages/build/clients/rust" timeout --kill-after=10 900 "$sources/package" "$packages" || return 0
    check "$language: its package has a licence, and links that work elsewhere" "$ROOT/clients/check_package" "$packages"
    ((CHECKS_FAILED == failed))
}

absolute_links() { "$ROOT/script/release" --readme "clients/$1/README.md" >"$2"; }

# It is apart from the other clients: its SDK is no package of Debian's.
group_dotnet() {
    ensure_installed
    start_clients_cluster
    local status=0
    "$ROOT/clients/dotnet/test" || status=$?
    ((status == 0)) || show_tail 60 "$WORK/clients/server.log"
    stop_cluster clients
    return "$status"
}

# The demo's verdict, and that it can fail.
group_demo() {
    check "the demo's verdict holds" "$ROOT/script/demo"
    check "without idempotency the same demo fails" demo_fails
    check "the picture of the README matches a run" "$ROOT/script/story" --check
    ((CHECKS_FAILED == 0))
}

demo_fails() {
    local status=0
    "$ROOT/script/demo" --sabotage=no-idempotency || status=$?
    ((status == 1))
}

# All functions at the same time, while faults hit the server; and the checker finds planted bugs.
group_chaos() {
    ensure_cmake_built
    run_ctest chaos --parallel "$(nproc)"
    check "every planted bug fits the sources, and compiles" bugs_fit
    check_by_clock "one minute of chaos breaks no promise" "$ROOT/script/chaos" --minutes 1
    check "two planted bugs are caught" "$ROOT/script/chaos" --prove \
        complete_outside_the_effects_transaction snapshot_not_checked_at_a_grant
    check_by_clock "a run without hits does not count" chaos_does_not_count
    check "a run that does not count is repeated" chaos_is_repeated
    ((CHECKS_FAILED == 0))
}

# Each time on a new cluster: as it was after a clock that went back and after a search that was cut off, longer after a
# run without hits. The third run's verdict stands.
chaos_is_repeated() {
    local SEED=1 MINUTES=0 SECONDS_EACH=1 SCENARIOS=(mixed) OPTIONS=() tries=$WORK/tries status=0
    ensure_installed
    chaos() {
        local done
        done=$(wc -l <"$tries")
        "$PG_BINDIR/psql" -qAtXc "SELECT '$6 s'" chaos >>"$tries"
        return "${statuses[$done]}"
    }
    local statuses=(5 3 0)
    true >"$tries"
    run_scenarios && diff - "$tries" <<<$'1 s\n1 s\n3 s' || return
    statuses=(4 4 4)
    true >"$tries"
    run_scenarios || status=$?
    ((status == 4)) && diff - "$tries" <<<$'1 s\n1 s\n1 s'
}

# check_by_clock DESCRIPTION command...: as check, but status 5 is a skip: of a run that failed three times, the machine's
# clock going back each time.
check_by_clock() {
    local description=$1 status=0
    shift
    ("$@") >"$WORK/attempt.log" 2>&1 || status=$?
    case $status in
        0) check "$description" true ;;
        5) skip "$description" "the machine's clock goes back"; show_tail 60 "$WORK/attempt.log" ;;
        *) check "$description" fail_with "$WORK/attempt.log" ;;
    esac
}

chaos_does_not_count() {
    local status=0
    "$ROOT/script/chaos" --scenario mixed --seconds 3 --faults none || status=$?
    ((status == 3)) || return "$((status == 5 ? 5 : 1))"
}

# Three servers, of which some die; and that the checker sees commits lost where none waits for a
# standby.
group_failover() {
    if ! prepare_failover; then
        skip failover "there is no $LACKING"
        return 0
    fi
    build_for_chaos
    check_by_clock "synchronous: a killed server, a switchover and a stopped agent lose nothing" \
        failover_that_counts sync "$WORK/sync" 24 --seed 2 --faults server,switchover,freeze
    check_by_clock "asynchronous: record and effect are lost together" \
        failover_that_counts async "$WORK/async" 1 --seed 1 --faults server
    check "work lost without a wait for the standby is found" \
        prove_failover asynchronous_taken_for_synchronous
    if citus_is_installed; then
        with_citus
        check_by_clock "workers of a Citus cluster: two killed servers lose nothing" \
            failover_that_counts sync "$WORK/workers" 20 --seed 1 --faults server
    fi
    ((CHECKS_FAILED == 0))
}
