# A Postgres server for whoever holds the other ends of stdin and stdout. `start <port> [-F]` and `stop` are answered
# with `ok` or `failed`, what went wrong is told on stderr, and once stdin is closed, by whatever end of who held
# it, the server and its folder are gone.

# Whoever reads the answers may be gone, and what was begun still has to be put away.
trap '' PIPE
# Debian keeps these programs off PATH, each version in a folder of its own. The newest is put in front last.
for programs in $(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V); do PATH="$programs:$PATH"; done
# Not /tmp, which may be in memory: each test leaves a database of some megabytes.
folder=$(mktemp -d /var/tmp/holdpoint-postgres.XXXXXX) && cd "$folder" || exit
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
while read -r order port sync; do
    case $order in
    # TCP alone. With -F nothing is synced: these rows may go down with the machine.
    start) answer pg_ctl start -s -l server.log \
        -o "-p $port -h 127.0.0.1 -k '' $sync -N 500 -c max_wal_size=64MB" ;;
    # Without a word to its clients and without a checkpoint, as a crash: what it knows is in its log.
    stop) answer pg_ctl stop -s -m immediate ;;
    esac
done

pg_ctl stop -s -m immediate 2>/dev/null
cd / && rm -rf "$folder"
