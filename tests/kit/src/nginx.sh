# An nginx on port $1 that compresses whatever it forwards to the server on port $2. It ends when stdin is closed,
# however its parent ends.

trap '' PIPE
folder=$(mktemp -d /var/tmp/holdpoint-nginx.XXXXXX) && cd "$folder" || exit
cat >nginx.conf <<END
daemon off;
master_process off;
pid nginx.pid;
error_log stderr error;
events {}
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    gzip on;
    gzip_types *;
    gzip_min_length 1;
    gzip_proxied any;
    server {
        listen 127.0.0.1:$1;
        location / {
            proxy_pass http://127.0.0.1:$2;
            proxy_http_version 1.1;
        }
    }
}
END
# Debian installs it outside the usual PATH.
PATH="$PATH:/usr/sbin" nginx -p "$folder" -c nginx.conf &
cat >/dev/null
kill $!
wait
cd / && rm -rf "$folder"
