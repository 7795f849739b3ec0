// Any bytes as a hostfile and, behind the first zero byte, as a filter: hosts that can stand in a
// command, each once, and ranks without a gap; or one UserError of a line; never anything else.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>

#include "launcher/placement/resources.h"
#include "runtime/core/error.h"

namespace {

using dstrain::HostOptions;

void must(bool holds) {
  if (!holds) abort();
}

void check_message(const std::string& text) {
  must(!text.empty() && text.size() < 1000 && text.find('\n') == std::string::npos);
}

void choose(const dstrain::Hostfile& pool, const HostOptions& options) {
  try {
    int rank = 0;
    for (const dstrain::HostRanks& host : dstrain::choose_hosts(pool, options)) {
      must(host.first_rank == rank && host.ranks() > 0);
      for (size_t i = 1; i < host.slots.size(); ++i) must(host.slots[i - 1] < host.slots[i]);
      rank += host.ranks();
    }
    must(rank > 0);
  } catch (const dstrain::UserError& e) {
    check_message(e.what());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string all(reinterpret_cast<const char*>(data), size);
  const size_t zero = std::min(all.find('\0'), size);
  try {
    const dstrain::Hostfile pool = dstrain::parse_hostfile(all.substr(0, zero), "hosts");
    std::set<std::string> names;
    for (const dstrain::HostEntry& host : pool.hosts) {
      must(dstrain::host_name_error(host.name).empty());
      must(names.insert(host.name).second);
    }
    for (const std::string& warning : pool.warnings) check_message(warning);
    choose(pool, {});
    if (zero < size) {
      choose(pool, {.include = all.substr(zero + 1)});
      choose(pool, {.exclude = all.substr(zero + 1)});
    }
  } catch (const dstrain::UserError& e) {
    check_message(e.what());
  }
  return 0;
}
