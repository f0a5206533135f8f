# Sets PYTHON to the first Python of 3.11 or newer, for which requirements.txt was made, that can make virtual environments; empty where there is none.
PYTHON=
for one in "${PYTHON3:-python3}" /usr/bin/python3 python3.13 python3.12 python3.11; do
    if "$one" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        PYTHON=$one
        break
    fi
done
