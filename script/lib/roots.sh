# Root file systems of other Debian releases, made with debootstrap and kept for the next run.
# Commands run in them with separate mounts and processes: when the command ends, in any way, the
# kernel stops the remaining processes and undoes the mounts.
# shellcheck shell=bash

# shellcheck disable=SC2034 # for script/matrix and script/package
ROOTS=${IDEM_ROOTS:-/var/cache/idempotency/roots}

# mirror LABEL: this machine's own source of Debian's LABEL. Empty if unknown.
mirror() {
    command -v apt-get >/dev/null || return 0
    # shellcheck disable=SC2016 # expanded by apt-get
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' \
        "Label: $1" 2>/dev/null | sort -u | head -n 1
}

# make_root SUITE [NAME]: does nothing if it exists. It gets its name when it is complete, so an
# interrupted run leaves no partial one. Without a mirror debootstrap uses its default.
make_root() {
    local suite=$1 root=$ROOTS/${2:-$1}
    [[ ! -d $root ]] || return 0
    mkdir -p "$ROOTS"
    rm -rf "$root.part"
    # debootstrap mounts as well, and must not leave that mount behind either.
    unshare --mount --pid --fork --kill-child=KILL -- \
        debootstrap --variant=minbase "$suite" "$root.part" \
        "$(mirror Debian)" "$(bootstrap_script "$suite")" || return
    set_up_apt "$suite" "$root.part"
    forbid_services "$root.part"
    mv "$root.part" "$root"
}

# A debootstrap that is older than a suite treats it as it does unstable.
bootstrap_script() {
    local scripts=/usr/share/debootstrap/scripts
    if [[ -e $scripts/$1 ]]; then echo "$scripts/$1"; else echo "$scripts/sid"; fi
}

# With the security updates: servers of the same day fit together, and pg_upgrade can fail if the
# old one is newer than the new one. An outdated mirror is better than none.
set_up_apt() {
    local security
    echo 'Acquire::Check-Valid-Until "false";' >"$2/etc/apt/apt.conf.d/mirror"
    [[ $1 != sid ]] || { add_experimental "$2"; return; }
    security=$(mirror Debian-Security)
    [[ -z $security ]] || echo "deb $security $1-security main" >"$2/etc/apt/sources.list.d/security.list"
}

# Only a server that is not released yet comes from there. Unstable, which has no security updates
# of its own, will have the release: a newer version, which is therefore preferred.
NEXT_SERVER=postgresql-19
add_experimental() {
    sed -n 's/ sid / experimental /p' "$1/etc/apt/sources.list" >"$1/etc/apt/sources.list.d/experimental.list"
    printf '%s\n' "Package: src:$NEXT_SERVER" 'Pin: release a=experimental' 'Pin-Priority: 500' \
        >"$1/etc/apt/preferences.d/experimental"
    # Packages are built for this version, not for unstable's own default.
    mkdir -p "$1/etc/postgresql-common"
    echo "${NEXT_SERVER##*-}" >"$1/etc/postgresql-common/supported_versions"
}

# Only the packages' programs are wanted there, and no cluster "main". Anything lost in a crash of
# the machine can be made again.
forbid_services() {
    printf '#!/bin/sh\nexit 101\n' >"$1/usr/sbin/policy-rc.d"
    chmod +x "$1/usr/sbin/policy-rc.d"
    mkdir -p "$1/etc/postgresql-common"
    echo 'create_main_cluster = false' >"$1/etc/postgresql-common/createcluster.conf"
    echo force-unsafe-io >"$1/etc/dpkg/dpkg.cfg.d/unsafe-io"
}

# in_root NAME command...
in_root() {
    local root=$ROOTS/$1
    shift
    # shellcheck disable=SC2016 # expanded by the shell in there
    unshare --mount --pid --fork --kill-child=KILL -- sh -ec '
        root=$1; shift
        mount -t proc proc "$root/proc"
        mkdir -p "$root/dev/shm"
        mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
        exec chroot "$root" "$@"' sh "$root" \
        env -i HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

# install_in_root NAME package...: the missing ones, by today's package lists.
install_in_root() {
    local name=$1
    shift
    # shellcheck disable=SC2016 # expanded by dpkg-query
    if ! in_root "$name" dpkg-query -W -f '${db:Status-Status}\n' "$@" 2>&1 |
        awk '$0 != "installed" { exit 1 }'; then
        in_root "$name" apt-get -qq update || say "apt-get update failed; trying with the lists at hand"
        in_root "$name" apt-get -qq -y --no-install-recommends install "$@"
    fi
}

# copy_into_root NAME: the checkout as /idempotency. Products of earlier builds stay, so that a
# second run has less to do.
copy_into_root() {
    local target=$ROOTS/$1/idempotency
    mkdir -p "$target"
    find "$target" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
    copy_sources "$target"
    chown -R root:root "$target"
}

# copy_authorities NAME: if this machine reaches npm's registry through its own certificate
# authority, npm there has to know that authority, too.
EXTRA_AUTHORITIES=/etc/extra-ca-certificates.crt
copy_authorities() {
    [[ ! -r ${NODE_EXTRA_CA_CERTS:-} ]] || cp "$NODE_EXTRA_CA_CERTS" "$ROOTS/$1$EXTRA_AUTHORITIES"
}
