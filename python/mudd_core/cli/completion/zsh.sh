_mudd() {
  local word=$PREFIX
  local -a found before
  before=("${(@)words[1,CURRENT-1]}")
  while (( $#before )) && [[ ${before[1]:t} != (launch.py|mudd) ]]; do shift before; done
  (( $#before )) && shift before
  found=("${(@f)$(setopt null_glob; _mudd_listed "$word" "${(@)before}")}")
  found=("${(@M)found:#$word*}")
  if [[ $word == *=* ]]; then
    compset -P '*='
    found=("${(@)found#*=}")
  fi
  local -a open=("${(@M)found:#*[=./]}") closed=("${(@)found:#*[=./]}")
  (( $#open )) && compadd -S '' -- "${(@)open}"
  (( $#closed )) && compadd -- "${(@)closed}"
  (( $#found )) || _files
}
if [[ $funcstack[1] == _mudd ]]; then _mudd "$@"; else compdef _mudd launch.py mudd; fi
