#include "launcher/fronts/foreign_ranks.h"

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

// Returns the number that an environment variable holds; nothing if it holds none.
std::optional<int64_t> number_in(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  const std::string_view all = text;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), value);
  if (error != std::errc() || end != all.data() + all.size()) return std::nullopt;
  return value;
}

}  // namespace

void refuse_foreign_ranks(const LaunchOptions& options) {
  const std::optional<int64_t> rank = number_in("RANK"), ranks = number_in("WORLD_SIZE");
  const bool chosen =
      options.front != Front::automatic || options.no_ssh || !options.hosts.hostfile.empty();
  if (chosen || !rank || !ranks || *ranks < 2) return;
  fail_user(
      "RANK={0} and WORLD_SIZE={1} say that torchrun, or a program like it, has started this "
      "process as one of {1}, and each of them would train alone: start one dstrain without that "
      "program, which starts the ranks itself (--num_gpus {1}); --launcher none lets this process "
      "train alone on purpose",
      *rank, *ranks);
}

}  // namespace dstrain
