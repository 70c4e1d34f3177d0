# How mariadb.sh and mysql.sh serve: they source this. They set DIR and PORT, and define template, which makes the folder
# of an empty server in CACHE, and start, which starts one on DIR/data, puts its process into server and waits until it
# answers.

server= # its process

# serve CACHE DATA serves a copy of the folder DATA until standard input ends, and obeys its lines meanwhile.
serve() {
  trap '' INT TERM HUP # what interrupts a whole group of processes must leave somebody to end the server
  mkdir -p "$DIR"
  # Whoever started this may be gone at any time, even before it hears that the server serves.
  trap '' PIPE
  trap end EXIT
  template "$1" 2>"$DIR/log"
  cp -r --sparse=always "$2" "$DIR/data"
  start
  echo ok
  local line
  while read -r line; do
    case $line in
    kill) kill -9 $server; wait $server || true; rm -f "$DIR/m.pid"; echo ok ;;
    start) start; echo ok ;;
    esac
  done
}

end() {
  if [ -n "$server" ]; then kill -9 "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; fi
  rm -rf "$DIR"
  # A copy that lies beside it, in a folder made for both, goes too.
  [ "$(dirname "$0")" != "$(dirname "$DIR")" ] || rm -rf "$(dirname "$0")"
}
