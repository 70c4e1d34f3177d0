# How the databases' scripts fetch what they install: they source this.

# again COMMAND...: runs a download that a bad network may break off, up to four times.
again() {
  local pause
  for pause in 5 15 45; do
    "$@" && return
    sleep "$pause"
  done
  "$@"
}
