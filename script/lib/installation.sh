# A copy of the server's files for this run. The module is installed into it and servers start from
# it. So the machine's own installation stays unchanged, and no rights to it are needed.
# shellcheck shell=bash

INSTALLED=     # the folder of the copy, in which everything has the path that it has on the machine
OUR_CONFIG=    # the copy's pg_config; PG_CONFIG stays the machine's, which has the headers

# use_installation FOLDER: the copy will be there. The first function that needs it makes it.
use_installation() {
    INSTALLED=$1
    PG_BINDIR=$INSTALLED$("$PG_CONFIG" --bindir) || die "cannot run $PG_CONFIG"
    OUR_CONFIG=$PG_BINDIR/$(basename "$PG_CONFIG")
}

# A server finds its files relative to the real place of its programs, so these must not be symbolic
# links. With hard links, a change of owner or mode would also change the machine's files.
copy_installation() {
    local programs library share folder
    # An empty answer would mean the whole machine.
    programs=$("$PG_CONFIG" --bindir) && library=$("$PG_CONFIG" --pkglibdir) && share=$("$PG_CONFIG" --sharedir) &&
        [[ -n $programs && -n $library && -n $share ]] || { say "$PG_CONFIG does not say where the server is"; return 1; }
    rm -rf "$INSTALLED"
    copy_programs "$programs" || return
    for folder in "$library" "$share"; do
        mkdir -p "$INSTALLED$folder"
        cp -R --preserve=mode,timestamps,links "$folder/." "$INSTALLED$folder" || return
        forget_module_in "$INSTALLED$folder"
    done
    chmod -R u+rwX,go+rX "$INSTALLED"
    keeps_to_itself "$INSTALLED" "$OUR_CONFIG" || die "the server of $PG_CONFIG cannot be moved"
}

# Its folder may be the system's own, with every other program in it.
copy_programs() {
    local program
    mkdir -p "$PG_BINDIR"
    for program in "$1"/{postgres,postmaster,initdb,psql,ecpg,pg*,{create,drop}{db,user}} \
        "$1"/{cluster,reindex,vacuum}db; do
        [[ ! -f $program ]] || cp -Lp "$program" "$PG_BINDIR" || return
    done
}

# Whatever version of it the machine has.
forget_module_in() { rm -rf "$1"/{idempotency.so,bitcode/idempotency{,.index.bc},extension/idempotency{.,--}*}; }

# keeps_to_itself FOLDER PG_CONFIG: whether everything that is installed for this server lands below
# the folder. A moved server finds its folders from its programs, unless a patch has removed that.
keeps_to_itself() {
    local option folder
    for option in --bindir --libdir --pkglibdir --sharedir --pgxs --includedir-server; do
        folder=$(run_as_postgres "$2" "$option") || return
        [[ $folder == "$1"/* ]] || { say "$option is $folder"; return 1; }
    done
}
