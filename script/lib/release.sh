# The files of a release: sources, packages, a signed apt repository, images, the bill of materials, checksums.
# shellcheck shell=bash

# A release of Debian has one server, of which the packages are made: 15, 17, 18. When testing (forky) has 19, they are made
# of that one instead. SUITE in script/matrix says where each server is.
RELEASE_SUITES=(bookworm trixie forky)
# Its root file system has the tools that write indexes and images.
TOOLS_SUITE=bookworm
KEYRING=idempotency-archive-keyring.pgp

release_version() { sed -n 's/^    "version": "\(.*\)",/\1/p' "$ROOT/META.json"; }
release_date() { date -d "$(sed -n 's/^ -- .*>  //p' "$ROOT/debian/changelog" | head -n 1)" +%s; }

# The next server, while no suite of a release has it.
server_without_package() {
    local suite
    for suite in "${RELEASE_SUITES[@]}"; do
        ! in_root "$suite" apt-cache show "$NEXT_SERVER" >/dev/null 2>&1 || return 0
    done
    echo "no package for PostgreSQL ${NEXT_SERVER##*-} in these suites: ${RELEASE_SUITES[*]}"
}

# make_release FOLDER KEY SUITE...: without a key nothing is signed. PLACE is where packages are built, and
# PLACE_SETTINGS are the settings of that build: words.
make_release() {
    local folder=$1 key=$2 suite settings
    shift 2
    read -ra settings <<<"${PLACE_SETTINGS:-}"
    rm -rf "$folder"
    mkdir -p "$folder/apt/pool"
    make_sources "$folder"
    for suite in "$@"; do
        say "$suite: building the packages"
        build_packages "$suite" "$WORK/release-sources" "$folder/apt/pool/$suite" \
            "${PLACE:-package/idempotency}" "${settings[@]}" >"$WORK/packages.log" 2>&1 ||
            { show_tail 60 "$WORK/packages.log" >&2; return 1; }
    done
    make_indexes "$folder/apt" "$@"
    make_images "$folder" "$@"
    "$ROOT/packaging/sbom" "$WORK/release-sources" "$folder"/apt/pool/* >"$folder/idempotency-$(release_version).cdx.json"
    [[ -z $key ]] || sign_indexes "$folder/apt" "$key" "$@"
    make_checksums "$folder" "$key"
}

# The last commit's files: the archives, which PGXN takes as well, and what they unpack to.
make_sources() {
    local name
    name=idempotency-$(release_version)
    find_pg_config
    make_in "$WORK/dist" "$ROOT" dist >/dev/null
    cp "$WORK/dist/$name".{zip,tar.gz} "$1/"
    rm -rf "${WORK:?}/$name" "$WORK/release-sources"
    tar -C "$WORK" -xzf "$1/$name.tar.gz"
    mv "$WORK/$name" "$WORK/release-sources"
}

# make_indexes FOLDER SUITE...: what apt reads before it trusts a package.
make_indexes() {
    local folder=$1 suite place=$ROOTS/$TOOLS_SUITE/release-apt binary
    shift
    make_root "$TOOLS_SUITE"
    install_in_root "$TOOLS_SUITE" apt-utils
    binary=main/binary-$(dpkg --print-architecture)
    rm -rf "$place"
    cp -R "$folder" "$place"
    for suite in "$@"; do
        write_sources_of_apt "$suite" >"$folder/idempotency-$suite.sources"
        release_fields "$suite" >"$place/$suite.conf"
        mkdir -p "$place/dists/$suite/$binary"
        # shellcheck disable=SC2016 # expanded there
        in_root "$TOOLS_SUITE" env --chdir=/release-apt sh -ec '
            apt-ftparchive packages "pool/$1" >"dists/$1/$2/Packages"
            gzip -9nk "dists/$1/$2/Packages"
            apt-ftparchive -c "$1.conf" release "dists/$1" >Release
            mv Release "dists/$1/"' sh "$suite" "$binary"
    done
    mv "$place/dists" "$folder/"
    rm -rf "$place"
}

release_fields() {
    printf 'APT::FTPArchive::Release::%s "%s";\n' Origin idempotency Label idempotency Suite "$1" Codename "$1" \
        Components main Architectures "$(dpkg --print-architecture)" \
        Date "$(LC_ALL=C TZ=UTC date -d "@$(release_date)" '+%a, %d %b %Y %H:%M:%S UTC')"
}

# What a user's machine gets: where the repository is, and whose signature it has.
write_sources_of_apt() {
    printf '%s\n' 'Types: deb' "URIs: $(sed -n 's/^apt *= *//p' "$ROOT/release.conf")" "Suites: $1" 'Components: main' \
        "Signed-By: /etc/apt/keyrings/$KEYRING"
}

# sign_indexes FOLDER KEY SUITE...
sign_indexes() {
    local folder=$1 key=$2 suite
    shift 2
    for suite in "$@"; do
        rm -f "$folder/dists/$suite/"{InRelease,Release.gpg}
        sign "$key" --clearsign --output "$folder/dists/$suite/InRelease" "$folder/dists/$suite/Release"
        sign "$key" --detach-sign --output "$folder/dists/$suite/Release.gpg" "$folder/dists/$suite/Release"
    done
    gpg --batch --quiet --yes --export --output "$folder/$KEYRING" "$key"
}

sign() {
    local key=$1
    shift
    gpg --batch --quiet --yes --armor --digest-algo SHA512 --local-user "$key" "$@"
}

# Of every file, in the order of the names.
make_checksums() {
    (cd "$1" && find . -type f ! -name 'SHA256SUMS*' -printf '%P\0' | LC_ALL=C sort -z | xargs -0 sha256sum >SHA256SUMS)
    [[ -z $2 ]] || sign "$2" --detach-sign --output "$1/SHA256SUMS.asc" "$1/SHA256SUMS"
}
