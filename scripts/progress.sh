# Numbered steps, and the progress of long commands; sourced by ./run, which sets $steps.

step_number=0

say() { printf '%s\n' "run: $*"; }

# step TEXT: announces the next of $steps.
step() {
  step_number=$((step_number + 1))
  say "step $step_number/$steps: $*"
}

# clock SECONDS: prints 7:43.
clock() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

# progress LOG SECONDS: prints the newest count of Ninja ("[88/187]") or CTest ("12/81 Test") with the estimated time
# left, otherwise the last line of the log without the URL of a download.
progress() {
  tail -c 20000 "$1" | tr '\r' '\n' | awk -v seconds="$2" '
    function clock(s) { return sprintf("%d:%02d", s / 60, s % 60) }
    { sub(/^ +/, ""); gsub(/[a-z]+:\/\/[^ ]*\//, "") }
    /^$/ { next }
    { line = $0; ninja = /^\[[0-9]+\/[0-9]+\]/; ctest = /^[0-9]+\/[0-9]+ Test/ }
    ninja || ctest { split($1, part, /[^0-9]+/); done = part[1 + ninja]; total = part[2 + ninja] }
    END {
      if (!total) print clock(seconds) " " line
      else if (done <= total / 20) printf "[%d/%d] %s\n", done, total, clock(seconds)
      else printf "[%d/%d] %s, about %s left\n", done, total, clock(seconds), clock(seconds * (total - done) / done)
    }'
}

# watch LOG START: shows the progress until it is killed or ./run ends; each second on a terminal, else each minute.
watch() {
  columns=$(stty size 2>/dev/null </dev/tty | cut -d ' ' -f 2) || columns=
  [ "${columns:-0}" -ge 20 ] || columns=80
  due=60
  while sleep 1 </dev/null >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
    seconds=$(($(date +%s) - $2))
    if [ -t 1 ]; then
      line=$(say "  $(progress "$1" "$seconds")" | cut -c "1-$((columns - 1))")
      printf '\r\033[K%s' "$line"
    elif [ "$seconds" -ge "$due" ]; then
      due=$((seconds + 60))
      say "  $(progress "$1" "$seconds" | cut -c 1-100)"
    fi
  done
}

unwatch() {
  [ -n "${watcher:-}" ] || return 0
  kill "$watcher" 2>/dev/null || true
  wait "$watcher" 2>/dev/null || true
  watcher=
  [ ! -t 1 ] || printf '\r\033[K'
}

# follow LOG COMMAND...: runs the command with its output in the log, shows its progress, and returns its status.
follow() {
  log=$1
  shift
  mkdir -p "$(dirname "$log")"
  : >"$log"
  began=$(date +%s)
  watch "$log" "$began" &
  watcher=$!
  trap unwatch EXIT  # Ctrl-C ends the command and this shell; the watcher ignores it
  followed=0
  "$@" >"$log" 2>&1 || followed=$?
  unwatch
  trap - EXIT
  took=$(($(date +%s) - began))
  [ "$took" -lt 5 ] || say "  took $(clock "$took")"
  return "$followed"
}
