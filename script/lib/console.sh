# The console's packages: their folder and their installation.
# shellcheck shell=bash

CONSOLE= # the folder that it runs from: its sources and the packages that they import

# Names missing programs.
console_needs() {
    command -v npm >/dev/null &&
        node -e 'const [major, minor] = process.versions.node.split(".").map(Number);
            process.exit(major * 100 + minor < 1820 ? 1 : 0)' 2>/dev/null && return
    echo "Node.js 18.20 or newer with npm (Debian's nodejs and npm, or another build in PATH)."
    return 1
}

# install_console NAME [arguments of npm ci]: below build/, or in the user's cache if that is not
# writable. The packages are those of the lock file, byte for byte, and none of their scripts is
# run. A complete copy made from the same lock file is reused; so are identical sources, which
# another console may be starting from.
install_console() {
    local name=$1 wanted part
    shift
    CONSOLE=$ROOT/build/$name
    mkdir -p "$CONSOLE" 2>/dev/null && [[ -w $CONSOLE ]] ||
        CONSOLE=${XDG_CACHE_HOME:-$HOME/.cache}/idempotency/$name
    mkdir -p "$CONSOLE"
    wanted=$(cat "$ROOT/console/package-lock.json" && echo "$*")
    if [[ $(cat "$CONSOLE/installed" 2>/dev/null) != "$wanted" ]]; then
        echo "installing the console's packages" >&2
        rm -f "$CONSOLE/installed"
        cp "$ROOT"/console/package{,-lock}.json "$CONSOLE" || return
        (cd "$CONSOLE" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error "$@" >&2) || return
        printf '%s\n' "$wanted" >"$CONSOLE/installed"
    fi
    for part in server page; do
        diff -r "$ROOT/console/$part" "$CONSOLE/$part" >/dev/null 2>&1 && continue
        rm -rf "${CONSOLE:?}/$part"
        cp -R "$ROOT/console/$part" "$CONSOLE" || return
    done
}
