# A primary, its standby, the manager that promotes the standby (pg_auto_failover), and HAProxy in front of the
# two. The ports are $1 for the manager, $2 and $3 for the servers, $4 for HAProxy. `ok` is printed once commits
# wait for the standby, or `failed` after errors on stderr. The orders are answered with `ok`: `mute` stops
# the replication, and `kill` ends the primary and its keeper for good, as the loss of their machine would.
# When stdin is closed, however the parent ends, everything is removed.

# The reader of the answers may have ended; the cleanup still has to run.
trap '' PIPE
# Debian installs these programs outside PATH, Postgres with each version in its own folder. The newest version
# comes first in PATH.
PATH="$PATH:/usr/sbin"
for programs in $(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V); do PATH="$programs:$PATH"; done
folder=$(mktemp -d /var/tmp/holdpoint-failover.XXXXXX) && cd "$folder" || exit
# The keepers store their configuration and their state here.
export HOME="$folder" XDG_CONFIG_HOME="$folder" XDG_DATA_HOME="$folder" XDG_RUNTIME_DIR="$folder" PGHOST="$folder"
# Two keepers that make this folder at once fail: it is their common part of the paths of their states.
mkdir -p "$folder/pg_autoctl$folder"
manager="postgres://autoctl_node@127.0.0.1:$1/pg_auto_failover?sslmode=disable"

# Makes the data of the server $1. Nothing is synced: these rows may be lost with the machine. Shared memory in files
# of the folder leaves nothing when a server is killed. Without the last setting, the copy for the standby would wait
# for a slow checkpoint.
prepare() {
    initdb --username=postgres --auth=trust --encoding=UTF8 --locale=C --no-sync "$1" >"$1.log" 2>&1
    cat >>"$1/postgresql.conf" <<END
dynamic_shared_memory_type = mmap
unix_socket_directories = '$folder'
fsync = off
max_connections = 200
checkpoint_completion_target = 0
END
}

# Runs the server $1 on the port $2, with its keeper.
keep() {
    pg_autoctl create postgres --pgdata "$folder/$1" --pgport "$2" --listen 127.0.0.1 --hostname 127.0.0.1 \
        --name "$1" --auth trust --no-ssl --monitor "$manager" --run >>"$1.log" 2>&1
}

# Waits until the manager knows the server $1 in a state that matches $2.
becomes() {
    states="SELECT nodename || ' ' || reportedstate FROM pgautofailover.node"
    for _ in $(seq 600); do
        psql -qAt "$manager" -c "$states" 2>/dev/null | grep -q "^$1 $2\$" && return
        sleep 0.1
    done
    return 1
}

# Prints the descendants of the process $1, and then $1.
tree() {
    for child in $(ps -o pid= --ppid "$1"); do tree "$child"; done
    echo "$1"
}

prepare one &
prepare manager
# By default the manager waits half a minute before it promotes a standby.
cat >>manager/postgresql.conf <<END
pgautofailover.health_check_period = 300
pgautofailover.health_check_retry_delay = 200
pgautofailover.health_check_max_retries = 1
pgautofailover.node_considered_unhealthy_timeout = 2000
pgautofailover.primary_demote_timeout = 1000
pgautofailover.startup_grace_period = 500
END
wait
pg_autoctl create monitor --pgdata "$folder/manager" --pgport "$1" --hostname 127.0.0.1 --auth trust --no-ssl \
    --run >>manager.log 2>&1 &
manages=$!

# A server is up for HAProxy if it reports to a new session that it takes writing transactions and is not in recovery.
# The check sends the first message of a session of the user `postgres`, and expects
# `default_transaction_read_only` `off` and `in_hot_standby` `off`.
cat >haproxy.cfg <<END
defaults
    mode tcp
    timeout connect 1s
    timeout client 10m
    timeout server 10m
listen postgres
    bind 127.0.0.1:$4
    option tcp-check
    tcp-check connect
    tcp-check send-binary 00000029000300007573657200706f73746772657300646174616261736500706f7374677265730000
    tcp-check expect binary 64656661756c745f7472616e73616374696f6e5f726561645f6f6e6c79006f666600
    tcp-check expect binary 696e5f686f745f7374616e646279006f666600
    default-server check inter 200ms fall 2 rise 1 on-marked-down shutdown-sessions
    server one 127.0.0.1:$2
    server two 127.0.0.1:$3
END
haproxy -db -f haproxy.cfg >haproxy.log 2>&1 &
balances=$!

keep one "$2" &
one=$!
# The first server that the manager knows becomes the primary.
becomes one '.*'
keep two "$3" &
two=$!
if becomes two secondary && becomes one primary; then
    echo ok
else
    cat -- *.log >&2
    echo failed
fi

while read -r order; do
    case $order in
    mute)
        sender=$(psql -qAt -h 127.0.0.1 -p "$2" -U postgres -c "SELECT pid FROM pg_stat_replication" postgres)
        kill -STOP "$sender"
        until ps -o stat= -p "$sender" | grep -q T; do sleep 0.01; done
        echo ok
        ;;
    kill)
        # No keeper starts a server again meanwhile.
        kill -STOP $(tree "$one") 2>/dev/null
        kill -KILL $(tree "$one") 2>/dev/null
        echo ok
        ;;
    esac
done

for process in $balances $one $two $manages; do
    kill -KILL $(tree "$process") 2>/dev/null
done
cd / && rm -rf "$folder"
