# Images of containers, made by umoci from the packages of a release. Nothing runs in the background, and no
# engine is asked: an image is a layer and its description.
# shellcheck shell=bash

# The user "postgres", as CloudNativePG expects it.
SERVER_UID=26

# make_images FOLDER SUITE...: of the packages in FOLDER/apt.
make_images() {
    local folder=$1 suite major
    shift
    mkdir -p "$folder/images"
    make_root "$TOOLS_SUITE"
    install_in_root "$TOOLS_SUITE" umoci skopeo
    for suite in "$@"; do
        for major in $(packaged_servers "$folder" "$suite"); do
            say "$suite: images for PostgreSQL $major"
            make_server_image "$folder" "$suite" "$major"
            ((major < 18)) || make_extension_image "$folder" "$suite" "$major"
        done
    done
}

packaged_servers() {
    find "$1/apt/pool/$2" -name 'postgresql-*-idempotency_*.deb' | sed -nE 's|.*/postgresql-([0-9]+)-idempotency_.*|\1|p' | sort -n
}

# ---- the server ----

make_server_image() {
    local folder=$1 suite=$2 major=$3 image=image-$2-$3
    make_server_root "$folder" "$suite" "$major" "$image"
    pack_layer "$ROOTS/$image"
    make_image "$folder" "idempotency-server-$major-$(release_version)-$suite" \
        --config.user "$SERVER_UID" --config.entrypoint /usr/local/bin/entrypoint --config.cmd postgres \
        --config.env "PATH=/usr/lib/postgresql/$major/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
        --config.env LANG=C.UTF-8 --config.env PGDATA=/var/lib/postgresql/data \
        --config.exposedports 5432/tcp --config.volume /var/lib/postgresql/data \
        --config.label "org.opencontainers.image.title=PostgreSQL $major with the extension idempotency"
    rm -rf "${ROOTS:?}/$image"
}

make_server_root() {
    local folder=$1 suite=$2 major=$3 root=$ROOTS/$4
    make_root "$suite" "fresh-$suite"
    rm -rf "$root"
    cp -a --reflink=auto "$ROOTS/fresh-$suite" "$root"
    mkdir "$root/packages"
    cp "$folder/apt/pool/$suite/postgresql-$major-idempotency"_*.deb "$root/packages/"
    in_root "$4" groupadd --system postgres
    in_root "$4" useradd --system --uid "$SERVER_UID" --gid postgres --home-dir /var/lib/postgresql --shell /bin/bash postgres
    in_root "$4" apt-get -qq update
    in_root "$4" sh -c 'apt-get -qq -y --no-install-recommends install /packages/*.deb'
    printf '%s\n' "listen_addresses = '*'" "shared_preload_libraries = 'idempotency'" \
        >>"$root/usr/share/postgresql/$major/postgresql.conf.sample"
    install -m 755 "$ROOT/packaging/images/entrypoint" "$root/usr/local/bin/entrypoint"
    in_root "$4" install -d -m 700 -o postgres -g postgres /var/lib/postgresql/data
    in_root "$4" install -d -m 2775 -o postgres -g postgres /run/postgresql
    forget_making "$root"
}

# What belongs to the machine or the day of the making. A key of TLS in an image would be every user's.
forget_making() {
    local root=$1
    rm -rf "$root"/{packages,usr/sbin/policy-rc.d,etc/machine-id,etc/hostname,etc/resolv.conf} \
        "$root"/etc/{apt/apt.conf.d/mirror,dpkg/dpkg.cfg.d/unsafe-io,ssl/private/*,ssl/certs/ssl-cert-snakeoil.pem} \
        "$root"/etc/{passwd,group,shadow,gshadow,subuid,subgid}- "$root"/var/lib/dpkg/*-old \
        "$root"/var/cache/{apt,debconf,ldconfig,man}/* "$root"/var/lib/apt/lists/* "$root"/var/lib/systemd/* \
        "$root"/{tmp,var/tmp}/* "$root"/root/.cache
    find "$root/var/log" -type f -delete
    # The day on which a password was set.
    sed -i -E "s/^([^:]*:[^:]*:)[0-9]+:/\1$(($(release_date) / 86400)):/" "$root/etc/shadow"
}

# ---- the extension alone ----

# As CloudNativePG mounts it: /lib is added to dynamic_library_path, /share to extension_control_path.
make_extension_image() {
    local folder=$1 suite=$2 major=$3 root=$WORK/extension-$2-$3 from=$WORK/unpacked-$2-$3
    rm -rf "$root" "$from"
    mkdir -p "$root/lib" "$root/share/extension" "$root/share/doc/idempotency"
    dpkg-deb -x "$folder/apt/pool/$suite/postgresql-$major-idempotency"_*.deb "$from"
    cp "$from/usr/lib/postgresql/$major/lib/idempotency.so" "$root/lib/"
    cp "$from/usr/share/postgresql/$major/extension"/idempotency* "$root/share/extension/"
    cp "$from/usr/share/doc/postgresql-$major-idempotency/copyright" "$root/share/doc/idempotency/"
    pack_layer "$root"
    make_image "$folder" "idempotency-extension-$major-$(release_version)-$suite" \
        --config.label "org.opencontainers.image.title=the extension idempotency for PostgreSQL $major"
}

# ---- images ----

IMAGE_PLACE=release-image

# pack_layer FOLDER: with the same bytes whenever it is packed.
pack_layer() {
    local place=$ROOTS/$TOOLS_SUITE/$IMAGE_PLACE
    rm -rf "$place"
    mkdir -p "$place"
    tar -C "$1" --one-file-system --sort=name --numeric-owner "--mtime=@$(release_date)" --clamp-mtime --format=posix \
        --pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime -cf "$place/layer.tar" .
}

# make_image FOLDER NAME [arguments of umoci config]: of the layer that was packed, as an archive of OCI's layout.
make_image() {
    local folder=$1 name=$2 date
    shift 2
    date=$(date -u -d "@$(release_date)" +%Y-%m-%dT%H:%M:%SZ)
    # shellcheck disable=SC2016 # expanded there
    in_root "$TOOLS_SUITE" env "--chdir=/$IMAGE_PLACE" sh -ec '
        date=$1
        shift
        umoci init --layout image
        umoci new --image image:latest
        umoci raw add-layer --image image:latest --history.created "$date" --history.created_by "packages of Debian" layer.tar
        umoci config --image image:latest --no-history --created "$date" --os linux "$@"
        umoci gc --layout image' sh "$date" --architecture "$(dpkg --print-architecture)" \
        --config.label "org.opencontainers.image.version=$(release_version)" \
        --config.label "org.opencontainers.image.licenses=PostgreSQL" "$@"
    tar -C "$ROOTS/$TOOLS_SUITE/$IMAGE_PLACE/image" --sort=name --owner=0 --group=0 --numeric-owner --mode=a+rX,u+w,go-w \
        "--mtime=@$(release_date)" -cf "$folder/images/$name.tar" .
    rm -rf "${ROOTS:?}/$TOOLS_SUITE/$IMAGE_PLACE"
}
