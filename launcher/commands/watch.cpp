// dstrain watch: serves the page of a run to browsers on this machine.
#include <fmt/format.h>
#include <sys/signalfd.h>

#include <cerrno>
#include <csignal>

#include "launcher/commands/commands.h"
#include "launcher/process/descriptor.h"
#include "launcher/process/failure.h"
#include "launcher/report/watch/page_server.h"
#include "runtime/core/error.h"
#include "runtime/core/files/system_reason.h"

namespace dstrain {

int run_watch(const WatchArguments& arguments) {
  sigset_t ends;
  ::sigemptyset(&ends);
  for (const int number : {SIGINT, SIGTERM}) {
    std::signal(number, SIG_DFL);  // a shell ignores SIGINT for what a script starts with '&'
    ::sigaddset(&ends, number);
  }
  ::sigprocmask(SIG_BLOCK, &ends, nullptr);
  const Descriptor stop(::signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK));
  if (stop.get() < 0) fail_run("cannot receive signals: {}", system_reason(errno));
  report::PageServer server(arguments.run, static_cast<int>(arguments.port));
  print_result(fmt::format("{} at {} (^C ends it)\n", arguments.run, server.address()));
  server.serve(stop.get());
  return 0;
}

}  // namespace dstrain
