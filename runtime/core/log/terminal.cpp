#include "runtime/core/log/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace dstrain {
namespace {

constexpr int kUsualColumns = 80;

}  // namespace

int terminal_columns(int descriptor) {
  winsize size{};
  if (::ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsualColumns;
  return size.ws_col;
}

bool can_erase_lines(int descriptor) {
  const char* const type = std::getenv("TERM");
  return ::isatty(descriptor) == 1 && (type == nullptr || std::string_view(type) != "dumb");
}

}  // namespace dstrain
