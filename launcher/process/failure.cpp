#include "launcher/process/failure.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <system_error>

#include "runtime/core/error.h"
#include "runtime/core/files/system_reason.h"

namespace dstrain {

Failure current_failure() {
  try {
    throw;
  } catch (const UserError& e) {
    return {FailureKind::user, e.what()};
  } catch (const PeerError& e) {
    return {FailureKind::peer, e.what()};
  } catch (const RunError& e) {
    return {FailureKind::run, e.what()};
  } catch (const std::bad_alloc&) {
    return {FailureKind::run, "the machine has no memory left"};
  } catch (const std::system_error& e) {
    if (e.code() == std::errc::resource_unavailable_try_again)
      return {FailureKind::run, fmt::format("cannot start a thread: {}", system_reason(EAGAIN))};
    return {FailureKind::internal, fmt::format("internal error, please report it: {}", e.what())};
  } catch (const std::exception& e) {
    return {FailureKind::internal, fmt::format("internal error, please report it: {}", e.what())};
  } catch (...) {
    return {FailureKind::internal, "internal error, please report it: an unknown exception"};
  }
}

int report_failure() {
  const Failure failure = current_failure();
  print_error(failure.text);
  return failure.exit_status();
}

void print_error(std::string_view text) {
  std::string lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (lines.empty() || !text.starts_with(' ')) lines += "dstrain: error: ";
    lines += text.substr(0, end);
    lines += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  std::fwrite(lines.data(), 1, lines.size(), stderr);
  std::fflush(stderr);
}

void print_result(std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    fail_run("cannot write to standard output: {}", std::strerror(errno));
}

}  // namespace dstrain
