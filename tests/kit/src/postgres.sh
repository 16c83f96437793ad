# A Postgres server for the process that holds the other ends of stdin and stdout. `start <port> [options]` and
# `stop` are answered with `ok` or `failed`; errors are printed to stderr. When stdin is closed, however the
# parent ends, the server and its folder are removed. The argument `in-memory` asks for files in memory; otherwise
# they are on disk.

# The reader of the answers may have ended; the cleanup still has to run.
trap '' PIPE
# Debian installs these programs outside PATH, each version in its own folder. The newest version comes first
# in PATH.
for programs in $(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V); do PATH="$programs:$PATH"; done
parent=/var/tmp
# In memory, creating the 400 files of a database takes a fifth of the CPU. In containers /dev/shm is often too small.
if [ "$1" = in-memory ] && free=$(df --output=avail --block-size=G /dev/shm 2>/dev/null | tail -n 1 | tr -dc 0-9) &&
    [ "$free" -ge 4 ]; then
    parent=/dev/shm
fi
folder=$(mktemp -d $parent/holdpoint-postgres.XXXXXX) && cd "$folder" || exit
export PGDATA="$folder/data"

answer() {
    if "$@" >log 2>&1; then
        echo ok
    else
        cat log server.log >&2 2>/dev/null
        echo failed
    fi
}

answer initdb --username=postgres --auth=trust --encoding=UTF8 --locale=C --no-sync
while read -r order port options; do
    case $order in
    # Only TCP. With the option -F nothing is synced: these rows may be lost with the machine.
    start) answer pg_ctl start -s -l server.log \
        -o "-p $port -h 127.0.0.1 -k '' -N 500 -c max_wal_size=64MB $options" ;;
    # As in a crash: no message to clients and no checkpoint. The committed data is in the write-ahead log.
    stop) answer pg_ctl stop -s -m immediate ;;
    esac
done

pg_ctl stop -s -m immediate 2>/dev/null
cd / && rm -rf "$folder"
