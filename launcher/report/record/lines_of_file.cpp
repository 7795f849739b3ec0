#include "launcher/report/record/lines_of_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

namespace dstrain::report {
namespace {

constexpr size_t kLongestLine = size_t{1} << 20;
constexpr int64_t kBlock = int64_t{1} << 20;

}  // namespace

LinesRead read_lines(const InputFile& file, int64_t bytes,
                     const std::function<void(std::string_view line)>& use) {
  std::string text(static_cast<size_t>(kBlock), '\0');
  std::string begun;      // the beginning of a line that goes on in the next block
  bool too_long = false;  // that line
  LinesRead done;
  while (done.bytes < bytes) {
    const auto most = static_cast<size_t>(std::min(kBlock, bytes - done.bytes));
    const ssize_t got = ::pread(file.descriptor(), text.data(), most, done.bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done.bytes += got;
    std::string_view rest(text.data(), static_cast<size_t>(got));
    for (size_t end = 0; (end = rest.find('\n')) != std::string_view::npos;) {
      const std::string_view piece = rest.substr(0, end);
      if (begun.empty() && !too_long) {
        use(piece);
      } else {
        begun.append(piece.substr(0, too_long ? 0 : piece.size()));
        use(begun);
        begun.clear();
        too_long = false;
      }
      rest.remove_prefix(end + 1);
    }
    if (!too_long) begun.append(rest);
    if (begun.size() > kLongestLine) {
      begun.clear();
      too_long = true;
    }
  }
  done.torn = too_long || !begun.empty();
  return done;
}

}  // namespace dstrain::report
