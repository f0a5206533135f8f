# Building the module for the server that PG_CONFIG names, and installing it.
# shellcheck shell=bash

SRC=           # the tree to build from: the checkout, or a copy of it in the work folder
BUILD=         # the folder of the build
MODULE_FOLDER= # where the module is built, if not in BUILD
MAKE_OPTIONS=(WERROR=1)  # of every build of the module: one of ours has no warnings

# PG_CONFIG chooses the server; else it is Debian's 15, else the first in PATH.
find_pg_config() {
    local debian=/usr/lib/postgresql/15/bin/pg_config
    if [[ -z ${PG_CONFIG:-} && -x $debian ]]; then PG_CONFIG=$debian; fi
    PG_CONFIG=$(command -v "${PG_CONFIG:-pg_config}") || die "cannot run ${PG_CONFIG:-pg_config}"
    PG_CONFIG=$(realpath -s "$PG_CONFIG")
    export PG_CONFIG
}

pg_major() { "$PG_CONFIG" --version | sed 's/^PostgreSQL \([0-9]*\).*/\1/'; }

# The usual opening of a script that builds and runs programs. "prepare module" and "prepare demo"
# install only the packages that these need.
prepare() {
    "$ROOT/script/bootstrap" "$@"
    make_work_folder
    forget_libpq_settings
    be_patient
    find_pg_config
    use_installation "$WORK/server"
    choose_folders
}

# Builds in the checkout if possible, so that a second run has less to do. A read-only checkout
# is built elsewhere, as is one with an in-tree build, whose objects make would mistake for its own.
choose_folders() {
    [[ -r $ROOT/Makefile && -r $ROOT/src ]] || die "$ROOT is not readable"
    SRC=$ROOT BUILD=$ROOT/build
    is_writable "$BUILD" && ! has_objects && return
    SRC=$WORK/checkout BUILD=$WORK/build
    copy_sources "$SRC"
}

# Also if it does not exist yet. The last build may have been another user's.
is_writable() {
    local dir
    for dir in "$1" "$1/pg$(pg_major)" "$1/cmake" "$1/demo" "$1/fuzz"; do
        [[ ! -e $dir || -w $dir ]] || return 1
    done
    [[ -e $1 || -w $(dirname "$1") ]]
}

has_objects() {
    [[ -e $ROOT/idempotency.so || -e $ROOT/exports.list ||
        -n $(find "$ROOT/src" -name '*.o' -print -quit) ]]
}

# The files of the tree, without products of the build.
copy_sources() {
    mkdir -p "$1"
    tar -C "$ROOT" -cf - --exclude=./.git --exclude=./build --exclude='*.o' --exclude='*.bc' \
        --exclude='*.so' --exclude='*.a' --exclude='*.d' --exclude=./exports.list \
        --exclude='./clients/*/node_modules' --exclude='./clients/*/dist' --exclude='./clients/*/target' --exclude=./clients/target \
        --exclude='./clients/*/.venv' . |
        tar -C "$1" -xf - --no-same-permissions
    chmod -R u+rwX "$1"
    hand_over "$1"
}

module_folder() { echo "${MODULE_FOLDER:-$BUILD/pg$(pg_major)}"; }

# make_in FOLDER TREE [make arguments]: PGXS builds in the current folder from the tree of the
# Makefile.
make_in() {
    local folder=$1 tree=$2
    shift 2
    mkdir -p "$folder"
    make -C "$folder" -f "$tree/Makefile" --no-print-directory PG_CONFIG="$PG_CONFIG" \
        "${MAKE_OPTIONS[@]}" "$@"
}

build_module() { make_in "$(module_folder)" "$SRC" -j "$(nproc)"; }

# install_module PG_CONFIG [command...]: for the server of that pg_config, with the command before
# make. Adds files to the server's folders, and touches no cluster.
install_module() {
    local config=$1
    shift
    "$@" make -C "$(module_folder)" -f "$SRC/Makefile" --no-print-directory PG_CONFIG="$config" \
        "${MAKE_OPTIONS[@]}" install
}

# Once in a run, at the first request.
ensure_installed() {
    [[ ! -e $INSTALLED/complete ]] || return 0
    if [[ ${IDEM_EDITION:-module} == managed ]]; then
        quietly "installing the edition without C into a copy of the server" install_managed_edition
    else
        quietly "building the module" build_module
        quietly "installing it into a copy of the server" install_into_copy
    fi
    touch "$INSTALLED/complete"
}

# A server that is already a copy needs no other.
install_into_copy() {
    [[ $OUR_CONFIG == "$PG_CONFIG" ]] || copy_installation || return
    (umask 022 && install_module "$OUR_CONFIG")
}

# As an extension of the same name, whose objects belong to a role that is no superuser: so every suite
# runs as it is.
install_managed_edition() {
    copy_installation || return
    "$ROOT/test/managed/as_extension" "$("$OUR_CONFIG" --sharedir)/extension"
}

# The same for the programs that CMake builds: tests without a server, clients, examples.
ensure_cmake_built() {
    [[ ! -e $WORK/cmake-built ]] || return 0
    build_with_cmake "tests and examples"
    touch "$WORK/cmake-built"
}

# build_with_cmake WHAT [target...]: all, or these.
build_with_cmake() {
    local what=$1
    shift
    quietly "configuring with CMake" configure_cmake
    quietly "building $what" cmake --build "$BUILD/cmake" --parallel "$(nproc)" ${1:+--target "$@"}
}

# Names the server each time, because CMake remembers the last one, which may be gone. These
# programs are tested, not measured (script/bench builds its own), and compile in three fifths of
# the time that RelWithDebInfo takes.
configure_cmake() {
    cmake -S "$SRC" -B "$BUILD/cmake" -DCMAKE_BUILD_TYPE=None "-DCMAKE_CXX_FLAGS=-O1 -g1" -DWERROR=ON \
        "-DPG_CONFIG=$PG_CONFIG"
}

# Shows the output of a step only if the step fails.
quietly() {
    local what=$1 status=0
    shift
    say "$what"
    ("$@") >"$WORK/step.log" 2>&1 || status=$?
    ((status == 0)) || show_tail 100 "$WORK/step.log" >&2
    return "$status"
}
