#include "launcher/hosts/checks/findings.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "runtime/config/text.h"

namespace dstrain {

std::string findings_text(const std::vector<Finding>& findings) {
  size_t host = 0, check = 0;
  for (const Finding& f : findings) {
    host = std::max(host, f.host.size());
    check = std::max(check, f.check.size());
  }
  std::string text;
  for (const Finding& f : findings)
    text += fmt::format("\n  {:<{}}  {:<{}}  {}", f.host, host, f.check, check, f.text);
  return text;
}

std::string hosts_verdict(const std::vector<Finding>& findings, int ranks, size_t hosts) {
  const auto fatal = std::ranges::count_if(findings, &Finding::fatal);
  const auto warnings = std::ssize(findings) - fatal;
  const std::string run =
      fmt::format("{} on {}", counted(ranks, "rank"), counted(static_cast<int64_t>(hosts), "host"));
  if (fatal > 0)
    return fmt::format("not ready for {}: {} above must be mended first", run,
                       counted(fatal, "problem"));
  if (warnings == 0) return fmt::format("ready for {}", run);
  return fmt::format("ready for {}, with {}", run, counted(warnings, "warning"));
}

}  // namespace dstrain
