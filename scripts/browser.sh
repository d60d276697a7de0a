# A browser for the test of a run's page; sourced by ./run. After a failure here, only that test is skipped.

# Installs Debian's chromium and pip's playwright if they are missing and can be installed without a prompt.
try_browser() {
  if ! command -v chromium >/dev/null 2>&1; then
    sudo=
    [ "$(id -u)" -eq 0 ] || sudo="sudo -n"
    if ! command -v apt-get >/dev/null 2>&1 || ! $sudo true 2>/dev/null; then
      say "  no chromium; the test of the page in a browser is skipped"
      return 0
    fi
    say "  installing with apt-get, 1 to 2 min: chromium"
    if ! $sudo apt-get update -qq ||
      ! follow "$logs/browser.log" $sudo env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -q --no-install-recommends chromium; then
      say "  chromium cannot be installed; the test of the page in a browser is skipped"
      return 0
    fi
  fi
  wanted=$(requirements browser)
  stamped group-browser "$wanted" && return 0
  say "  installing into .venv (browser, less than 100 MB): $wanted"
  # shellcheck disable=SC2086
  if follow "$logs/browser.log" "$venv/bin/python" -m pip --disable-pip-version-check install $wanted; then
    stamp group-browser "$wanted"
  else
    say "  $wanted cannot be installed; the test of the page in a browser is skipped"
  fi
}
