# The group images: images of containers, unpacked and started, and the files that use them.
# shellcheck shell=bash

IMAGE=$TOOLS_SUITE/image-run

group_images() {
    local missing
    if ! missing=$(release_needs); then
        skip images "they need $missing"
    elif obtain node images install_console console --omit=dev; then
        make_and_use_images
    fi
    check_image_files
    ((CHECKS_FAILED == 0))
}

make_and_use_images() {
    local made=$WORK/release suite major
    export UNTESTED=1
    [[ -e $made/SHA256SUMS ]] ||
        check "images are made of the packages" "$ROOT/script/release" --make "$made" "${TESTED_SUITES[@]}"
    for suite in "${TESTED_SUITES[@]}"; do
        for major in $(packaged_servers "$made" "$suite"); do
            use_images "$made/images" "$major" "$major-$(release_version)-$suite.tar"
        done
    done
}

# use_images FOLDER MAJOR END
use_images() {
    local server=$1/idempotency-server-$3 extension=$1/idempotency-extension-$3
    check "$2: the server image refuses to start without a password" starts_nothing "$server"
    check "$2: the server image makes a cluster with the extension, and keeps its answers" server_image_works
    check "$2: the server image has no key, log or list of the machine that made it" server_image_is_clean
    (($2 >= 18)) || return 0
    check "$2: the extension image has /lib and /share alone" extension_image_is_small "$extension"
    check "$2: a server without the extension loads it from the extension image" extension_image_works
}

# unpack_image ARCHIVE FOLDER: below $IMAGE; its files are in FOLDER/rootfs, what it runs in FOLDER/config.json.
unpack_image() {
    local place=$ROOTS/$IMAGE
    rm -rf "${place:?}/$2"
    mkdir -p "$place/layout-$2"
    tar -C "$place/layout-$2" -xf "$1" || return
    in_root "$TOOLS_SUITE" umoci unpack --image "/image-run/layout-$2:latest" "/image-run/$2" || return
    in_root "$TOOLS_SUITE" skopeo inspect "oci:/image-run/layout-$2:latest" >"$place/$2/description" || return
    rm -rf "$place/layout-$2"
}

# run_image FOLDER NAME=VALUE... -- command...: as its user, with its environment. In the command, "$IMAGE_RUNS" is what
# the image runs by itself.
run_image() {
    local folder=$1 settings=() words
    shift
    while [[ $1 != -- ]]; do settings+=("$1"); shift; done
    shift
    mapfile -t words < <(python3 -c '
import json, sys
process = json.load(open(sys.argv[1]))["process"]
print(process["user"]["uid"], process["user"]["gid"], " ".join(process["args"]), *process["env"], sep="\n")' "$ROOTS/$IMAGE/$folder/config.json")
    in_root "$IMAGE/$folder/rootfs" env "${words[@]:3}" "IMAGE_RUNS=${words[2]}" "${settings[@]}" \
        setpriv --reuid "${words[0]}" --regid "${words[1]}" --clear-groups "$@"
}

starts_nothing() {
    rm -rf "${ROOTS:?}/$IMAGE"
    unpack_image "$1" server || return
    # shellcheck disable=SC2016 # expanded there
    ! run_image server -- sh -c '$IMAGE_RUNS' >"$WORK/image.log" 2>&1 || return
    grep 'set POSTGRES_PASSWORD' "$WORK/image.log" && is_empty "$ROOTS/$IMAGE/server/rootfs/var/lib/postgresql/data"
}

# The servers share the machine's network, so each has a port of its own.
server_image_works() {
    local port
    port=$(python3 "$ROOT/clients/conformance/suite/ports.py")
    image_answers "$port" execute POSTGRES_PASSWORD=secret POSTGRES_DB=payments && image_answers "$port" replay
}

# image_answers PORT OUTCOME NAME=VALUE...: starts the server, claims, completes a new claim, and stops it.
image_answers() {
    local port=$1 outcome=$2
    shift 2
    # shellcheck disable=SC2016 # expanded there
    run_image server "$@" "PORT=$port" "OUTCOME=$outcome" -- bash -ec '
        export PGPASSWORD=secret PGHOST=127.0.0.1 PGPORT=$PORT PGUSER=postgres PGDATABASE=payments
        env -u PGPASSWORD -u PGHOST -u PGPORT -u PGUSER -u PGDATABASE $IMAGE_RUNS -c "port=$PORT" >/tmp/server.log 2>&1 &
        trap "kill -INT $!; wait $! || true; cat /tmp/server.log" EXIT
        for _ in {1..600}; do pg_isready -q && break; kill -0 $!; sleep 0.2; done
        sql() { psql -XqAt -v ON_ERROR_STOP=1 -c "$1"; }
        [[ $(sql "SELECT outcome FROM idem_begin('\''order-1'\'')") == "$OUTCOME" ]]
        [[ $OUTCOME == replay ]] || sql "SELECT idem_complete(key, 201, '\''made'\'', token => token) FROM idempotency.record"
        [[ $(sql "SHOW shared_preload_libraries") == idempotency ]]
        [[ $(sql "SELECT count(*) FROM pg_extension WHERE extname = '\''idempotency'\''") == 1 ]]
        [[ $(PGPASSWORD=wrong psql -XAtc "SELECT 1" 2>&1) == *"password authentication failed"* ]]'
}

server_image_is_clean() {
    local root=$ROOTS/$IMAGE/server/rootfs
    ! find "$root"/etc/ssl/private "$root"/var/lib/apt/lists "$root"/var/cache/apt -type f | grep . || return
    [[ ! -e $root/etc/machine-id && ! -e $root/packages && ! -e $root/etc/apt/sources.list.d/idempotency.sources ]]
}

extension_image_is_small() {
    unpack_image "$1" extension || return
    (cd "$ROOTS/$IMAGE/extension/rootfs" && find . -type f) | grep -v '^./share/doc/' | LC_ALL=C sort |
        diff - <(printf './%s\n' lib/idempotency.so "share/extension/idempotency--$(release_version).sql" share/extension/idempotency.control)
}

# The server of the other image, without what it has of the extension.
extension_image_works() {
    local root=$ROOTS/$IMAGE/server/rootfs
    find "$root/usr" -name 'idempotency*' -path '*postgresql*' -exec rm -rf {} +
    sed -i '/^shared_preload_libraries/d' "$root"/usr/share/postgresql/*/postgresql.conf.sample
    mkdir -p "$root/extensions"
    mv "$ROOTS/$IMAGE/extension/rootfs" "$root/extensions/idempotency"
    # shellcheck disable=SC2016 # expanded there
    run_image server -- bash -ec '
        export PGDATA=/tmp/bare PGHOST=/tmp PGUSER=postgres PGDATABASE=postgres
        initdb -U postgres -A trust >/dev/null
        without="-c listen_addresses= -k /tmp -c shared_preload_libraries="
        sql() { psql -XqAt -v ON_ERROR_STOP=1 -c "$1"; }
        trap "pg_ctl stop -m fast >/dev/null; cat /tmp/bare.log" EXIT
        pg_ctl start -w -l /tmp/bare.log -o "$without" >/dev/null
        if sql "CREATE EXTENSION idempotency"; then exit 1; fi
        pg_ctl stop -m fast >/dev/null
        pg_ctl start -w -l /tmp/bare.log -o "-c listen_addresses= -k /tmp -c shared_preload_libraries=idempotency \
            -c extension_control_path=/extensions/idempotency/share:\\\$system \
            -c dynamic_library_path=/extensions/idempotency/lib:\\\$libdir" >/dev/null
        sql "CREATE EXTENSION idempotency"
        [[ $(sql "SELECT outcome FROM idem_begin('\''order-1'\'')") == execute ]]
        for _ in {1..600}; do
            [[ $(sql "SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ '\''idempotency'\''") == 0 ]] || exit 0
            sleep 0.1
        done
        exit 1'
}

# ---- the files that use them ----

check_image_files() {
    local file what
    for file in cluster cluster-before-18; do
        what="$file.yaml follows CloudNativePG's types"
        if ! command -v npm >/dev/null; then
            skip "$what" "it needs npm"
        elif obtain python "$what" install_validators && obtain node "$what" install_cloudnativepg_types; then
            check "$what" follows_cloudnativepg "packaging/images/$file.yaml"
        fi
    done
    what="compose.yaml follows the schema of Compose"
    if ! command -v go >/dev/null; then
        skip "$what" "it needs go"
    elif obtain python "$what" install_validators && obtain go "$what" compose_schema; then
        check "$what" follows_compose packaging/images/compose.yaml
    fi
}

CLOUDNATIVEPG_TYPES=(@kubernetes-models/cloudnative-pg@2.0.0 typescript@5.8.3)
install_cloudnativepg_types() {
    local folder
    folder=$(cache_folder cloudnativepg)
    [[ $(cat "$folder/installed" 2>/dev/null) != "${CLOUDNATIVEPG_TYPES[*]}" ]] || return 0
    rm -rf "$folder"
    mkdir -p "$folder"
    (cd "$folder" && npm install --ignore-scripts --no-audit --no-fund --loglevel=error "${CLOUDNATIVEPG_TYPES[@]}") &&
        echo "${CLOUDNATIVEPG_TYPES[*]}" >"$folder/installed"
}

follows_cloudnativepg() {
    is_of_cloudnativepg <"$ROOT/$1" || return
    ! sed 's/^  instances: 3/  instances: three/' "$ROOT/$1" | is_of_cloudnativepg || return
    ! sed 's/^  instances: 3/&\n  instanses: 3/' "$ROOT/$1" | is_of_cloudnativepg
}

is_of_cloudnativepg() {
    validating_python -c 'import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(sys.stdin))))' |
        node "$ROOT/test/release/validate_cluster.mjs" "$(cache_folder cloudnativepg)"
}

# The schema is in Compose's own library, a module of Go.
COMPOSE_MODULE=github.com/compose-spec/compose-go/v2@v2.4.7
compose_schema() {
    local module
    module=$(cd "$WORK" && go mod download -json "$COMPOSE_MODULE") || return
    echo "$(sed -n 's/.*"Dir": "\(.*\)".*/\1/p' <<<"$module")/schema/compose-spec.json"
}

follows_compose() {
    local schema
    schema=$(compose_schema) || return
    validating_python "$ROOT/test/release/validate_compose" "$schema" "$ROOT/$1" || return
    sed 's/^    image:/    imagine:/' "$ROOT/$1" >"$WORK/spoilt.yaml"
    ! validating_python "$ROOT/test/release/validate_compose" "$schema" "$WORK/spoilt.yaml"
}
