#include "launcher/doctor/huge_pages.h"

#include <fmt/core.h>

#include <fstream>

namespace dstrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSettings = "sys/kernel/mm/transparent_hugepage";

// Returns the word in brackets of "always [madvise] never"; empty if there is no such file.
std::string chosen_word(const fs::path& file) {
  std::ifstream in(file);
  for (std::string word; in >> word;)
    if (word.starts_with('[') && word.ends_with(']')) return word.substr(1, word.size() - 2);
  return "";
}

// Returns what a setting chooses for pages of 2 MiB, for which newer kernels have a file of their own.
std::string setting_of_pages(const fs::path& settings, const char* name) {
  const std::string own = chosen_word(settings / "hugepages-2048kB" / name);
  return own.empty() || own == "inherit" ? chosen_word(settings / name) : own;
}

MachineLine huge_page_line(const std::string& memory, const std::string& file,
                           const std::string& chosen, const std::string& wanted) {
  MachineLine line{.subject = "huge pages", .values = {{"memory", memory}, {"setting", chosen}}};
  if (!chosen.empty() && chosen != "never" && chosen != "deny") {
    line.text = fmt::format("{} has them ({} is {}): what has 2 MiB or more takes whole ones",
                            memory, file, chosen);
    return line;
  }
  line.health = Health::note;
  line.text = fmt::format(
      "{} has none ({}): the kernel provides it more slowly, and its addresses "
      "take more time to look up",
      memory,
      chosen.empty() ? "the kernel is built without" : fmt::format("{} is {}", file, chosen));
  if (!chosen.empty())
    line.remedy = fmt::format("as root: echo {} >/{}/{}", wanted, kSettings, file);
  else
    line.remedy = "a kernel with CONFIG_TRANSPARENT_HUGEPAGE has them";
  return line;
}

}  // namespace

HugePageFacts huge_page_facts(const fs::path& root) {
  const fs::path settings = root / kSettings;
  return {.own = setting_of_pages(settings, "enabled"),
          .shared = setting_of_pages(settings, "shmem_enabled")};
}

MachineLines huge_page_lines(const HugePageFacts& facts) {
  return {huge_page_line("memory of a rank's own", "enabled", facts.own, "madvise"),
          huge_page_line("memory that ranks share", "shmem_enabled", facts.shared, "advise")};
}

}  // namespace dstrain
