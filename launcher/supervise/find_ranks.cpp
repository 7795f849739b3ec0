#include "launcher/supervise/find_ranks.h"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

namespace dstrain {
namespace {

namespace fs = std::filesystem;

std::optional<int> number_in(std::string_view text) {
  int number = -1;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

// Returns the rank that an environment names, if it has the mark.
std::optional<int> rank_in(const fs::path& environment, const std::string& mark) {
  constexpr std::string_view kRank = "OMPI_COMM_WORLD_RANK=";
  std::ifstream file(environment, std::ios::binary);  // another user's is unreadable
  std::optional<int> rank;
  bool marked = false;
  for (std::string entry; std::getline(file, entry, '\0');) {
    marked = marked || entry == mark;
    if (entry.starts_with(kRank)) rank = number_in(std::string_view(entry).substr(kRank.size()));
  }
  return marked ? rank : std::nullopt;
}

}  // namespace

std::map<int, pid_t> find_ranks(const std::string& mark) {
  std::map<int, pid_t> found;
  std::error_code none;
  for (fs::directory_iterator entry("/proc", none), end; entry != end; entry.increment(none)) {
    const std::optional<int> pid = number_in(entry->path().filename().native());
    if (!pid) continue;
    if (const auto rank = rank_in(entry->path() / "environ", mark)) found.emplace(*rank, *pid);
  }
  return found;
}

}  // namespace dstrain
