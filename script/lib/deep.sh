# The instruments of script/deep. Each part prepares a server, in $WORK/PART, and runs groups of
# script/test on it.
# shellcheck shell=bash

# shellcheck disable=SC2034 # for script/deep
PARTS_IN_ORDER=(lint clang assertions sanitizers valgrind memory fuzz migrations managed chaos release)

FUZZ_SECONDS=${FUZZ_SECONDS:-120}
CHAOS_MINUTES=${CHAOS_MINUTES:-10}

# ---- servers ----

# copy_debug_server PART [NAME=VALUE...] [command...]: runs every `postgres` under that command,
# except initdb's, which load no module. Without a command the server keeps the wrapper's name, by
# which `pg_ctl restart` will start it.
copy_debug_server() {
    local part=$1 bin=$WORK/$1/server/bin
    shift
    ensure_debug_server
    mkdir "$WORK/$part"
    cp -a "$(debug_server)" "$WORK/$part/server"
    keeps_to_itself "$WORK/$part/server" "$bin/pg_config" || die "the server with assertions has folders elsewhere"
    mv "$bin/postgres" "$bin/postgres.real"
    cat >"$bin/postgres" <<WRAPPER
#!/bin/bash
self=\$(readlink -f "\$0")
case " \$* " in
    *' --boot '* | *' --single '* | *' --check '* | *' -V '*) exec "\$self.real" "\$@" ;;
esac
before=(${*@Q})
while [[ \${before[0]:-} == [A-Z]*=* ]]; do
    export "\${before[0]}"
    before=("\${before[@]:1}")
done
((\${#before[@]})) || exec -a "\$self" "\$self.real" "\$@"
exec "\${before[@]}" "\$self.real" "\$@"
WRAPPER
    chmod +x "$bin/postgres"
    hand_over "$WORK/$part"
}

# on_server_of PART command...: the module is built and installed for it, and clusters start there.
on_server_of() {
    WORK=$WORK/$1
    shift
    MODULE_FOLDER=$WORK/module
    PG_CONFIG=$WORK/server/bin/pg_config OUR_CONFIG=$WORK/server/bin/pg_config
    INSTALLED=$WORK/server
    PG_BINDIR=$WORK/server/bin
    "$@"
}

run_groups_on() {
    local part=$1 group
    shift
    for group in "$@"; do
        run_group "$part: $group" on_server_of "$part" "group_$group"
    done
}

# no_reports FOLDER: fails with the reports that an instrument has written there.
no_reports() {
    local file found=0
    for file in "$1"/*; do
        [[ -s $file ]] || continue
        found=1
        show_tail 60 "$file"
    done
    ((found == 0))
}

# ---- parts ----

part_assertions() {
    copy_debug_server assertions
    run_groups_on assertions regress isolation tap
    run_group "assertions: fuzz" on_server_of assertions fuzz_at_length
    run_groups_on assertions client
}

fuzz_at_length() {
    local seed=${FUZZ_SEED:-$RANDOM}
    fuzz_functions --seed "$seed" --seconds "$FUZZ_SECONDS"
}

# The module is instrumented, the server is not. libstdc++ has to be loaded when the sanitizer looks
# for the functions that throw. The server frees nothing at its end, so leaks are not checked.
part_sanitizers() {
    local reports=$WORK/sanitizers/reports flags='-fsanitize=address,undefined -fno-sanitize-recover=all'
    local options="abort_on_error=1:print_stacktrace=1:log_path=$reports/report"
    copy_debug_server sanitizers "LD_PRELOAD=$(library_of libasan.so) $(library_of libstdc++.so.6)" \
        "ASAN_OPTIONS=detect_leaks=0:$options" "UBSAN_OPTIONS=$options"
    run_as_postgres mkdir "$reports"
    MAKE_OPTIONS=(with_llvm=no "CC=gcc $flags" "CXX=g++ $flags -g -fno-omit-frame-pointer")
    run_groups_on sanitizers regress isolation tap
    run_group "sanitizers: fuzz" on_server_of sanitizers fuzz_at_length
    run_groups_on sanitizers client
    MAKE_OPTIONS=()
    run_group "sanitizers: reports" check "the sanitizers have found nothing" no_reports "$reports"
}

library_of() { readlink -f "$(gcc -print-file-name="$1")"; }

part_valgrind() {
    local reports=$WORK/valgrind/reports
    copy_debug_server valgrind valgrind --quiet --leak-check=no --error-limit=no --num-callers=30 \
        "--suppressions=$WORK/valgrind/server/share/valgrind.supp" \
        "--suppressions=$SRC/test/deep/valgrind.supp" "--log-file=$reports/%p"
    run_as_postgres mkdir "$reports"
    run_groups_on valgrind regress
    run_group "valgrind: fuzz" on_server_of valgrind fuzz_functions --calls 6000 --limit 300
    run_group "valgrind: reports" check "valgrind has found nothing" no_reports "$reports"
}

part_memory() { run_group memory measure_memory; }

measure_memory() {
    ensure_installed
    start_test_cluster memory
    create_database memory
    local status=0
    "$ROOT/test/deep/memory" || status=$?
    stop_cluster memory
    return "$status"
}

part_fuzz() {
    run_group "fuzz: parsers" fuzz_parsers_at_length
    run_group "fuzz: functions" fuzz_at_length
}

# With another seed each time; a finding belongs in the corpus.
fuzz_parsers_at_length() {
    local target found=$WORK/found
    ensure_fuzzers_built
    for target in "$SRC"/test/fuzz/*_fuzz.cpp; do
        target=$(basename "$target" .cpp)
        mkdir -p "$found/$target"
        check "$target for $FUZZ_SECONDS seconds" "$BUILD/fuzz/$target" -max_len=4096 -timeout=30 \
            "-max_total_time=$FUZZ_SECONDS" "-artifact_prefix=$found/" "$found/$target" \
            "$SRC/test/fuzz/corpus/$target"
    done
    ((CHECKS_FAILED == 0))
}

part_lint() { run_group lint lint_sources; }

lint_sources() {
    quietly "configuring with CMake" configure_cmake
    check "clang-tidy has nothing to say" run_clang_tidy
    check "cppcheck has nothing to say" run_cppcheck
    ((CHECKS_FAILED == 0))
}

# Fails on a warning, whatever clang-tidy's exit status.
run_clang_tidy() {
    find "$SRC/src" -name '*.cpp' -print0 |
        xargs -0 -n 4 -P "$(nproc)" clang-tidy --quiet -p "$BUILD/cmake" --warnings-as-errors='*'
}

# It does not read the server's headers, so the version is passed to it.
run_cppcheck() {
    cppcheck --quiet --project="$BUILD/cmake/compile_commands.json" --file-filter="$SRC/src/*" \
        -DPG_VERSION_NUM=150000 -j "$(nproc)" --std=c++17 --enable=warning,performance,portability --inline-suppr \
        --suppressions-list="$SRC/test/deep/cppcheck.suppressions" --error-exitcode=1
}

part_clang() { run_group clang group_clang; }

# The groups of script/test that make and use a release.
part_release() { run_group release "$ROOT/script/release" --check; }

part_chaos() { run_group chaos chaos_at_length; }

chaos_at_length() {
    local store
    check "the checker catches every planted bug" "$ROOT/script/chaos" --prove
    for store in heap sql; do
        check "$CHAOS_MINUTES minutes of chaos with the $store store" \
            "$ROOT/script/chaos" --minutes "$CHAOS_MINUTES" --set "idempotency.store=$store"
    done
    ((CHECKS_FAILED == 0))
}

# The edition without C: every client, random input, the demo, and chaos.
part_managed() {
    local language languages=
    for language in "$ROOT"/clients/*/needs; do
        languages+=" $(basename "$(dirname "$language")")"
    done
    LANGUAGES=$languages run_group "managed: conformance" group_managed-conformance
    run_group "managed: fuzz" with_managed_edition fuzz_at_length
    run_group "managed: demo" group_managed-demo
    run_group "managed: chaos" check "$CHAOS_MINUTES minutes of chaos" "$ROOT/script/chaos" --edition managed \
        --minutes "$CHAOS_MINUTES"
}

# The edition without C, as a migration. The tools connect by TCP.
part_migrations() { run_group migrations run_migrations; }

run_migrations() {
    ensure_installed
    start_clients_cluster
    local status=0
    PG_BINDIR=$PG_BINDIR "$ROOT/test/managed/migrations/run" || status=$?
    ((status == 0)) || show_tail 60 "$WORK/clients/server.log"
    stop_cluster clients
    return "$status"
}
