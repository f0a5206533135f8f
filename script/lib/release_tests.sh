# The group release: the files of a release, made twice, and used in a fresh root file system of each suite.
# shellcheck shell=bash

read -ra TESTED_SUITES <<<"${SUITES:-${RELEASE_SUITES[*]}}"
CLEAN=clean-release

group_release() {
    local missing
    missing=$(release_needs) || { skip release "it needs $missing"; return; }
    obtain node release install_console console --omit=dev || return 0
    make_and_use_release
}

release_needs() {
    local name
    ((EUID == 0)) || { echo "root, for chroot and mounts"; return 1; }
    for name in apt-get git gpg dpkg-deb; do
        command -v "$name" >/dev/null || { echo "$name"; return 1; }
    done
    "$ROOT/script/bootstrap" matrix >/dev/null 2>&1 || { echo "debootstrap"; return 1; }
    console_needs
}

make_and_use_release() {
    local made=$WORK/release what suite major
    # script/package runs the packages' own tests.
    export UNTESTED=1
    make_key
    check "a release is made: sources, packages, a signed repository, a bill of materials" \
        "$ROOT/script/release" --make "$made" --key "$KEY" "${TESTED_SUITES[@]}"
    check "made again elsewhere, with another zone, language and mask, it has the same bytes" release_is_reproducible "$made"
    tar -C "$WORK" -xzf "$made/idempotency-$(release_version).tar.gz" --strip-components 1 --wildcards '*/META.json' || true
    lint "META.json, as PGXN reads it," pgxn_meta "$WORK/META.json"
    check "the checksums are those of all files, and signed" checksums_hold "$made"
    what="the bill of materials follows the schema of CycloneDX"
    ! obtain python "$what" install_validators || check "$what" bill_is_valid "$made"
    check "the bill names each dependency of the packages, and each package of npm within" bill_is_complete "$made"
    for suite in "${TESTED_SUITES[@]}"; do
        major=$(packaged_servers "$made" "$suite")
        check "a fresh $suite installs postgresql-$major-idempotency by apt" installs_by_apt "$made" "$suite" "$major"
        check "the extension works there" use_extension "$CLEAN"
        check "its apt refuses another key, changed indexes, and a changed package" apt_refuses "$made" "$suite" "$major"
    done
    ((CHECKS_FAILED == 0))
}

# A throw-away key, in a folder of its own.
make_key() {
    export GNUPGHOME=$WORK/gnupg
    mkdir -m 700 "$GNUPGHOME"
    gpg --batch --quiet --passphrase '' --quick-generate-key 'test of a release' ed25519 sign never
    gpg --batch --quiet --passphrase '' --quick-generate-key 'another key' ed25519 sign never
    KEY=$(gpg --list-keys --with-colons 'test of a release' | awk -F: '/^fpr/ { print $10; exit }')
}

# Signatures have the time, and .buildinfo has it and the folder.
release_is_reproducible() {
    PLACE=another-folder/of-the-sources PLACE_SETTINGS='TZ=XYZ-9 LC_ALL=C MASK=077' \
        "$ROOT/script/release" --make "$WORK/again" "${TESTED_SUITES[@]}" || return
    diff -r -x '*.buildinfo' -x '*.asc' -x InRelease -x Release.gpg -x "$KEYRING" -x SHA256SUMS "$1" "$WORK/again" &&
        rm -rf "$WORK/again"
}

checksums_hold() {
    gpg --batch --verify "$1/SHA256SUMS.asc" "$1/SHA256SUMS" || return
    (cd "$1" && sha256sum --check --quiet SHA256SUMS) || return
    [[ $(find "$1" -type f ! -name 'SHA256SUMS*' | wc -l) == "$(wc -l <"$1/SHA256SUMS")" ]] || return
    cp -R "$1/." "$WORK/spoilt"
    echo >>"$WORK/spoilt/idempotency-$(release_version).zip"
    ! (cd "$WORK/spoilt" && sha256sum --check --quiet SHA256SUMS)
}

# The schema is in CycloneDX's own library.
bill_is_valid() {
    validating_python "$ROOT/test/release/validate_bill" "$1"/*.cdx.json || return
    sed 's/"PostgreSQL"/"no licence"/' "$1"/*.cdx.json >"$WORK/spoilt.json"
    ! validating_python "$ROOT/test/release/validate_bill" "$WORK/spoilt.json"
}

# An interpreter with the libraries of PyPI that validate. Its folder gets its name when it is complete.
VALIDATORS=('cyclonedx-python-lib[json-validation]==11.12.0' PyYAML==6.0.3)
validating_python() { "$(cache_folder validators)/bin/python" "$@"; }
install_validators() {
    local folder
    folder=$(cache_folder validators)
    [[ $(cat "$folder/installed" 2>/dev/null) != "${VALIDATORS[*]}" ]] || return 0
    rm -rf "$folder"
    mkdir -p "$(dirname "$folder")"
    python3 -m venv "$folder" &&
        validating_python -m pip --disable-pip-version-check --quiet install "${VALIDATORS[@]}" &&
        echo "${VALIDATORS[*]}" >"$folder/installed"
}

bill_is_complete() {
    local bill deb package
    bill=$(echo "$1"/*.cdx.json)
    for deb in "$1"/apt/pool/*/*.deb; do
        dpkg-deb -f "$deb" Package
        dpkg-deb -f "$deb" Depends | sed 's/[,|]/\n/g' | sed 's/(.*//; s/ //g; s/:.*//; /^$/d'
    done | grep -v -- -dbgsym | sort -u | while read -r package; do
        grep -qF -e "\"pkg:deb/debian/$package@" -e "\"pkg:deb/debian/$package?" "$bill" || { echo "no $package"; return 1; }
    done || return
    dpkg-deb -x "$1/apt/pool/${TESTED_SUITES[0]}"/idempotency-console_*.deb "$WORK/console-package"
    for package in "$WORK"/console-package/usr/share/idempotency-console/node_modules/*/package.json; do
        package=$(node -p 'const { name, version } = require(process.argv[1]); `pkg:npm/${name}@${version}`' "$package")
        grep -qF "\"$package\"" "$bill" || { echo "no $package"; return 1; }
    done
}

# ---- a user's machine ----

# Its pristine root file system is kept; each run has a copy.
fresh_root() {
    make_root "$1" "fresh-$1"
    rm -rf "${ROOTS:?}/$CLEAN"
    cp -a --reflink=auto "$ROOTS/fresh-$1" "$ROOTS/$CLEAN"
}

# installs_by_apt RELEASE SUITE MAJOR
installs_by_apt() {
    local package=postgresql-$3-idempotency
    fresh_root "$2"
    offer_repository "$1" "$2"
    in_root "$CLEAN" apt-get -qq update &&
        in_root "$CLEAN" apt-get -qq -y --no-install-recommends install "$package" &&
        in_root "$CLEAN" apt-cache policy "$package" | grep -q 'file:/repository '
}

# offer_repository RELEASE SUITE: as a folder of that machine, with its key and sources.
offer_repository() {
    local root=$ROOTS/$CLEAN
    rm -rf "$root/repository"
    cp -R "$1/apt" "$root/repository"
    chmod -R a+rX "$root/repository"
    mkdir -p "$root/etc/apt/keyrings"
    install -m 644 "$1/apt/$KEYRING" "$root/etc/apt/keyrings/"
    sed 's|^URIs: .*|URIs: file:/repository|' "$1/apt/idempotency-$2.sources" \
        >"$root/etc/apt/sources.list.d/idempotency.sources"
}

# Only our repository is asked.
our_apt() {
    in_root "$CLEAN" apt-get -o Dir::Etc::SourceList=/etc/apt/sources.list.d/idempotency.sources -o Dir::Etc::SourceParts=- "$@"
}

# The user's machine has seen nothing of it before.
refuses_update() {
    rm -rf "$ROOTS/$CLEAN"/var/lib/apt/lists/*repository*
    our_apt update >"$WORK/apt.log" 2>&1 && return 1
    grep -E "$1" "$WORK/apt.log" || { cat "$WORK/apt.log"; return 1; }
}

# apt_refuses RELEASE SUITE MAJOR
apt_refuses() {
    local dist=$ROOTS/$CLEAN/repository/dists/$2 pool=$ROOTS/$CLEAN/repository/pool/$2 package=postgresql-$3-idempotency
    gpg --batch --quiet --yes --export --output "$ROOTS/$CLEAN/etc/apt/keyrings/$KEYRING" 'another key'
    refuses_update 'NO_PUBKEY|is not signed' || return

    offer_repository "$1" "$2"
    sed -i 's/^Label: .*/Label: changed/' "$dist/InRelease"
    refuses_update 'BADSIG|has been manipulated' || return

    offer_repository "$1" "$2"
    rm "$dist/InRelease" "$dist/Release.gpg"
    refuses_update 'is not signed' || return

    offer_repository "$1" "$2"
    sed -i 's/^Version: .*/Version: 9.9/' "$dist"/main/binary-*/Packages
    rm "$dist"/main/binary-*/Packages.gz
    refuses_update 'Hash Sum mismatch|unexpected size' || return

    offer_repository "$1" "$2"
    our_apt -qq update || return
    in_root "$CLEAN" apt-get -qq -y remove "$package" || return
    printf '\1' | dd of="$(echo "$pool/$package"_*.deb)" bs=1 seek=5000 conv=notrunc status=none
    ! in_root "$CLEAN" apt-get -qq -y install "$package" >"$WORK/apt.log" 2>&1 && grep 'Hash Sum mismatch' "$WORK/apt.log"
}
