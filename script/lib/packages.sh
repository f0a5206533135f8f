# Debian packages: built in a root file system from a folder of sources, and put into a fresh one.
# shellcheck shell=bash

BUILD_NEEDS=(build-essential debhelper dpkg-dev libssl-dev lintian postgresql-all postgresql-server-dev-all)

# needs_of_build SUITE: the unreleased server, which postgresql-all and -server-dev-all do not include.
needs_of_build() {
    [[ $1 != sid ]] || echo "$NEXT_SERVER" "${NEXT_SERVER/postgresql/postgresql-server-dev}"
}

# build_packages SUITE SOURCES TARGET [PLACE [NAME=VALUE...]]: copies the sources to PLACE in the suite's root
# file system, and the packages with their .buildinfo to TARGET. The bytes do not depend on the place, nor on
# the time, user's mask, zone and language of the build. UNTESTED leaves out the tests of that build.
build_packages() {
    local suite=$1 sources=$2 target=$3 place=${4:-package/idempotency}
    local folder=$ROOTS/$suite/${place%/*}
    shift $(($# < 4 ? 3 : 4))
    make_root "$suite"
    # shellcheck disable=SC2046 # words, or none
    install_in_root "$suite" "${BUILD_NEEDS[@]}" $(needs_of_build "$suite")
    rm -rf "$folder"
    mkdir -p "$folder"
    cp -R "$sources" "$ROOTS/$suite/$place"
    bundle_console "$ROOTS/$suite/$place/console"
    chown -R root:root "$folder"
    # shellcheck disable=SC2016 # expanded there
    in_root "$suite" env "--chdir=/$place" "DEB_BUILD_OPTIONS=parallel=$(nproc)${UNTESTED:+ nocheck}" "$@" \
        sh -ec 'umask "${MASK:-022}"; pg_buildext updatecontrol; dpkg-buildpackage --build=binary -us -uc'
    rm -rf "$target"
    mkdir -p "$target"
    cp "$folder"/*.{deb,buildinfo} "$target/"
}

# The packages of npm that the console imports: a build of Debian packages fetches nothing.
bundle_console() {
    install_console console --omit=dev
    rm -rf "$1/node_modules"
    cp -R "$CONSOLE/node_modules" "$1/"
}

# pg_virtualenv runs a throw-away cluster of each installed version.
use_extension() {
    in_root "$1" pg_virtualenv -a psql -X -v ON_ERROR_STOP=1 \
        -c 'CREATE EXTENSION idempotency' \
        -c "SELECT 1 / (outcome = 'execute')::int FROM idem_begin('package')" \
        -c "SELECT idem_complete(key, 201, 'made', token => token) FROM idempotency.record" \
        -c "SELECT 1 / (outcome = 'replay' AND body = 'made')::int FROM idem_begin('package')"
}
