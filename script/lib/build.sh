# Building and installing the module, for the server that PG_CONFIG names.
# shellcheck shell=bash

SRC=           # the tree to build from: the checkout, or a copy of it in the work folder
BUILD=         # the folder of what is built from it
MODULE_FOLDER= # where the module is built, if not in BUILD
MAKE_OPTIONS=()  # of every build of the module

# PG_CONFIG chooses the server; else it is Debian's 15, else whatever comes first in PATH.
find_pg_config() {
    local debian=/usr/lib/postgresql/15/bin/pg_config
    if [[ -z ${PG_CONFIG:-} && -x $debian ]]; then PG_CONFIG=$debian; fi
    export PG_CONFIG=${PG_CONFIG:-pg_config}
    # shellcheck disable=SC2034 # for server.sh
    PG_BINDIR=$("$PG_CONFIG" --bindir) || die "cannot run $PG_CONFIG"
}

pg_major() { "$PG_CONFIG" --version | sed 's/^PostgreSQL \([0-9]*\).*/\1/'; }

# The usual opening of a script that builds and runs something. "prepare module": not more than the
# module needs.
prepare() {
    "$ROOT/script/bootstrap" "$@"
    make_work_folder
    forget_libpq_settings
    find_pg_config
    choose_folders
}

# Builds beside the sources where that is possible, so that a second run has less to do. Not in a
# checkout that is read-only, nor in one with an in-tree build, whose objects make would take for
# the ones it needs.
choose_folders() {
    [[ -r $ROOT/Makefile && -r $ROOT/src ]] || die "$ROOT is not readable"
    SRC=$ROOT BUILD=$ROOT/build
    is_writable "$BUILD" && ! has_objects && return
    SRC=$WORK/checkout BUILD=$WORK/build
    copy_sources "$SRC"
}

# Also when it does not exist yet. Whoever built before may have been another user.
is_writable() {
    local dir
    for dir in "$1" "$1/pg$(pg_major)" "$1/cmake" "$1/fuzz"; do
        [[ ! -e $dir || -w $dir ]] || return 1
    done
    [[ -e $1 || -w $(dirname "$1") ]]
}

has_objects() {
    [[ -e $ROOT/idempotency.so || -e $ROOT/exports.list ||
        -n $(find "$ROOT/src" -name '*.o' -print -quit) ]]
}

# What is in the tree, without what was built there.
copy_sources() {
    mkdir -p "$1"
    tar -C "$ROOT" -cf - --exclude=./.git --exclude=./build --exclude='*.o' --exclude='*.bc' \
        --exclude='*.so' --exclude='*.a' --exclude='*.d' --exclude=./exports.list . |
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

# Adds files to the server's folders, and touches no cluster.
install_module() {
    local prefix=()
    if is_installed; then return 0; fi
    if ! can_install; then
        ((${#AS_ROOT[@]})) || die_installing
        prefix=("${AS_ROOT[@]}")
    fi
    "${prefix[@]}" make -C "$(module_folder)" -f "$SRC/Makefile" PG_CONFIG="$PG_CONFIG" \
        "${MAKE_OPTIONS[@]}" install
}

die_installing() {
    local makefile=$SRC/Makefile
    say "the server's folders belong to somebody else, and sudo asks for a password"
    [[ $BUILD == "$ROOT"/* ]] ||
        die "use a checkout that you can write and that has no in-tree build (make clean)"
    say "install what was built, then try again:"
    say "    sudo make -C $(module_folder) -f $makefile PG_CONFIG=$PG_CONFIG install"
    exit 1
}

can_install() { [[ -w $("$PG_CONFIG" --pkglibdir) && -w $("$PG_CONFIG" --sharedir)/extension ]]; }

# Whether the server already has exactly what was built.
is_installed() {
    local extensions file
    extensions=$("$PG_CONFIG" --sharedir)/extension
    cmp -s "$(module_folder)/idempotency.so" "$("$PG_CONFIG" --pkglibdir)/idempotency.so" || return
    for file in "$SRC"/idempotency.control "$SRC"/sql/idempotency--*.sql; do
        cmp -s "$file" "$extensions/${file##*/}" || return
    done
}

# Once in a run, whoever asks first.
ensure_installed() {
    [[ ! -e $WORK/installed ]] || return 0
    quietly "building the module" build_module
    quietly "installing the module" install_module
    touch "$WORK/installed"
}

# The same for what CMake builds: tests without a server, clients, examples.
ensure_cmake_built() {
    [[ ! -e $WORK/cmake-built ]] || return 0
    quietly "configuring with CMake" \
        cmake -S "$SRC" -B "$BUILD/cmake" -DCMAKE_BUILD_TYPE=RelWithDebInfo
    quietly "building tests and examples" cmake --build "$BUILD/cmake" --parallel "$(nproc)"
    touch "$WORK/cmake-built"
}

# Shows what a step printed only if the step fails.
quietly() {
    local what=$1 status=0
    shift
    say "$what"
    ("$@") >"$WORK/step.log" 2>&1 || status=$?
    ((status == 0)) || show_tail 100 "$WORK/step.log" >&2
    return "$status"
}
