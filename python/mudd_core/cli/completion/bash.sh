_mudd() {
  local line=${COMP_LINE:0:COMP_POINT} word name before
  local -a words
  read -ra words <<< "$line"
  word=${line##*[[:space:]]}
  if [ -n "$word" ]; then unset 'words[-1]'; fi
  while [ ${#words[@]} -gt 0 ]; do
    case ${words[0]} in
      launch.py|*/launch.py|mudd|*/mudd) words=("${words[@]:1}"); break ;;
    esac
    words=("${words[@]:1}")
  done
  COMPREPLY=()
  while IFS= read -r name; do
    if [[ $name == "$word"* ]]; then COMPREPLY+=("$name"); fi
  done < <(_mudd_listed "$word" "${words[@]}")
  if [ ${#COMPREPLY[@]} = 1 ]; then
    case ${COMPREPLY[0]} in *[=./]) compopt -o nospace 2> /dev/null ;; esac
  fi
  # readline replaces only the part after the last = of the word.
  if [[ $COMP_WORDBREAKS == *=* ]]; then
    before=${word%"${word##*=}"}
    COMPREPLY=("${COMPREPLY[@]#"$before"}")
  fi
}
_mudd_python() {
  COMPREPLY=()
  case ${COMP_WORDS[1]-} in launch.py|*/launch.py) _mudd ;; esac
}
complete -o default -F _mudd launch.py mudd
# For `python launch.py`; other scripts then complete file names.
complete -o default -F _mudd_python python python3
