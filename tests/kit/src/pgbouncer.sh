# A pgbouncer in transaction mode on port $1, in front of the Postgres on port $2, with at most $3 sessions
# there. It ends when stdin is closed, however its parent ends.

trap '' PIPE
folder=$(mktemp -d /var/tmp/holdpoint-pgbouncer.XXXXXX) && cd "$folder" || exit
cat >pgbouncer.ini <<END
[databases]
* = host=127.0.0.1 port=$2 user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $1
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = $3
END
# Debian installs it outside the usual PATH.
PATH="$PATH:/usr/sbin" pgbouncer -q pgbouncer.ini &
cat >/dev/null
kill $!
wait
cd / && rm -rf "$folder"
