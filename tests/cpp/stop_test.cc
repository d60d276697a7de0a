#include "mudd/base/stop.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "compare.h"
#include "mudd/base/check.h"

using namespace mudd;

namespace {

// Exit code of a child that sends itself the signals after taking them.
int exit_code_after(std::initializer_list<int> signals) {
  const pid_t child = fork();
  if (child == 0) {
    close(STDERR_FILENO);
    clear_requests();
    install_stop_handlers();
    for (int signal : signals) raise(signal);
    _exit(7);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace

TEST_CASE("each stop signal sets the flag and is remembered") {
  for (int signal : {SIGINT, SIGTERM, SIGUSR1}) {
    clear_requests();
    install_stop_handlers();
    CHECK_FALSE(stop_requested());
    raise(signal);
    CHECK(stop_requested());
    CHECK(stop_signal() == signal);
    CHECK_FALSE(take_save_request());
    remove_stop_handlers();
  }
  clear_requests();
  CHECK_FALSE(stop_requested());
  CHECK(stop_signal() == 0);
}

TEST_CASE("a request is answered once, by a process that says so") {
  for (bool says : {true, false}) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const pid_t child = fork();
    if (child == 0) {
      dup2(ends[1], STDERR_FILENO);
      clear_requests();
      install_stop_handlers(says);
      for (int signal : {SIGUSR1, SIGUSR1}) raise(signal);
      _exit(stop_requested() ? 0 : 1);
    }
    close(ends[1]);
    std::string text(256, '\0');
    text.resize(static_cast<size_t>(std::max<ssize_t>(0, read(ends[0], text.data(), text.size()))));
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(status == 0);
    CHECK(text == (says ? "\nstop requested; a second signal leaves at once\n" : ""));
  }
}

TEST_CASE("SIGUSR2 asks for one save and no stop") {
  install_stop_handlers();
  raise(SIGUSR2);
  CHECK_FALSE(stop_requested());
  CHECK(take_save_request());
  CHECK_FALSE(take_save_request());
  remove_stop_handlers();
}

TEST_CASE("a second SIGINT or SIGTERM leaves at once, others do not") {
  CHECK(exit_code_after({SIGINT}) == 7);
  CHECK(exit_code_after({SIGINT, SIGINT}) == 130);
  CHECK(exit_code_after({SIGTERM, SIGTERM}) == 143);
  CHECK(exit_code_after({SIGUSR1, SIGTERM}) == 143);
  CHECK(exit_code_after({SIGUSR1, SIGUSR1}) == 7);
  CHECK(exit_code_after({SIGUSR2, SIGUSR2, SIGTERM}) == 7);
}

TEST_CASE("handlers are given back and are not taken twice") {
  struct sigaction before = {}, after = {};
  sigaction(SIGTERM, nullptr, &before);
  install_stop_handlers();
  CHECK_THROWS_AS(install_stop_handlers(), StateError);
  remove_stop_handlers();
  remove_stop_handlers();
  sigaction(SIGTERM, nullptr, &after);
  CHECK((before.sa_handler == after.sa_handler));
}

TEST_CASE("a request without a signal") {
  request_stop();
  CHECK(stop_requested());
  CHECK(stop_signal() == 0);
  clear_requests();
}
