# Tab completion of mudd_core @version@; `launch.py completion @shell@` prints it.
_mudd_runs() {
  local folder
  for folder in runs/*/; do
    if [ -e "$folder/config.json" ]; then printf '%s\n' "$1${folder%/}"; fi
  done
}
_mudd_fields() {
  printf -- "$1%s$2\n" @fields@
}
_mudd_options() {
  case $1 in
@options@
  esac
}
_mudd_values() {
  case $1 in
    --config=) printf -- '--config=%s\n' @configs@ ;;
    --workdir=) _mudd_runs --workdir= ;;
    --explain=) _mudd_fields --explain= '' ;;
@values@
  esac
}
# Print a name on each line for the word $1, which follows the arguments $2, $3, ... of the program.
_mudd_listed() {
  local word=$1 command=train first=0
  shift
  case "${1-} ${2-}" in
    @pairs@) command="$1 $2" ;;
    *) case ${1-} in
      @commands@) command=$1 ;;
      esac ;;
  esac
  if [ $# = 0 ]; then first=1; fi
  case $word in
    *=*) _mudd_values "${word%%=*}=" ;;
    -*) _mudd_options "$command" ;;
    *.*) case $command in
      @with_fields@) _mudd_fields '' = ;;
      esac ;;
    *)
      if [ $first = 1 ]; then printf '%s\n' @names@; fi
      if [ $# = 1 ]; then
        case $1 in
@parts@
        esac
      fi
      case $command in
        @with_run@) _mudd_runs '' ;;
      esac
      case $command in
        @with_fields@) printf '%s\n' @sections@ ;;
      esac ;;
  esac
}
