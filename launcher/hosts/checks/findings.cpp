#include "launcher/hosts/checks/findings.h"

#include <fmt/core.h>

#include <algorithm>

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

}  // namespace dstrain
