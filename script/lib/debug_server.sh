# A server built from Debian's source package with assertions, and with the marks by which valgrind
# recognizes the server's memory chunks. The build takes some ten minutes, so it is kept.
# shellcheck shell=bash

DEBUG_SOURCE=postgresql-15

# DEEP_CACHE names the folder in which it is kept, and may be shared by checkouts.
debug_server() { echo "${DEEP_CACHE:-$ROOT/build/deep}/server"; }

ensure_debug_server() {
    [[ ! -x $(debug_server)/bin/pg_config ]] || return 0
    local tree=$WORK/server-source
    mkdir -p "$tree"
    quietly "fetching the source of $DEBUG_SOURCE" fetch_server_source "$tree"
    hand_over "$tree"
    quietly "building a server with assertions, which takes a while" build_debug_server "$tree"
    mkdir -p "$(dirname "$(debug_server)")"
    mv "$tree/stage/server" "$(debug_server)"
    keeps_to_itself "$(debug_server)" "$(debug_server)/bin/pg_config" || die "the server in $(debug_server) has folders elsewhere"
    rm -rf "$tree"
}

# The upstream sources: Debian's patches name Debian's own folders in every build. Uses separate
# package lists, so that apt's settings and state stay unchanged.
fetch_server_source() {
    local tree=$1 apt
    apt=(-o "Dir::Etc::SourceList=$tree/sources.list" -o Dir::Etc::SourceParts=-
        -o "Dir::State::Lists=$tree/lists" -o "Dir::Cache=$tree/cache" -o APT::Sandbox::User=root)
    mkdir -p "$tree/lists/partial" "$tree/cache/archives/partial"
    # shellcheck disable=SC2016 # apt expands these
    apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' \
        'Created-By: Packages' 'Origin: Debian' >"$tree/sources.list" || return
    apt-get "${apt[@]}" update || return
    (cd "$tree" && download_newest_source) || return
    dpkg-source --no-check --skip-patches -x "$tree"/*.dsc "$tree/tree"
}

# A mirror may announce a security update whose source it does not have.
download_newest_source() {
    local version
    while read -r version; do
        rm -f ./*.dsc
        apt-get "${apt[@]}" source --download-only "$DEBUG_SOURCE=$version" && return
    done < <(apt-cache "${apt[@]}" showsrc --only-source "$DEBUG_SOURCE" |
        sed -n 's/^Version: //p' | sort -Vru)
    return 1
}

# The build must not touch the system's own server: an unprivileged user builds, and installs into a
# stage. It omits libraries that no test needs, and includes the tools of the regression and TAP
# tests.
build_debug_server() {
    # shellcheck disable=SC2016 # the other shell expands these
    run_as_postgres bash -euc '
        cd "$1/tree"
        ./configure --prefix=/server --enable-cassert --enable-debug --enable-tap-tests \
            --without-readline --without-zlib CFLAGS="-O1 -g -fno-omit-frame-pointer" \
            CPPFLAGS=-DUSE_VALGRIND
        make -s -j "$(nproc)" world-bin
        make -s install-world-bin DESTDIR="$1/stage"
        cp src/tools/valgrind.supp "$1/stage/server/share/"' build "$1"
}
