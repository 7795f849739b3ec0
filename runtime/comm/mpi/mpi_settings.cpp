#include "runtime/comm/mpi/mpi_settings.h"

#include <net/if.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string_view>

namespace dstrain {
namespace {

// A window of an Exchange and its header are sent at once. Open MPI asks the receiver first from 64 KiB on,
// which would cost each window two more passes through the link's queues.
constexpr const char* kEagerBytes = "270336";

std::vector<std::string> interface_names() {
  std::vector<std::string> names;
  const std::unique_ptr<struct if_nameindex, void (*)(struct if_nameindex*)> list(
      ::if_nameindex(), [](struct if_nameindex* p) { ::if_freenameindex(p); });
  for (const struct if_nameindex* i = list.get(); i && i->if_index != 0; ++i)
    names.emplace_back(i->if_name);
  return names;
}

bool file_mentions(const std::string& path, std::string_view word) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.find(word) != std::string::npos) return true;
  return false;
}

bool user_chose_interfaces() {
  for (const char* name : {"OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_btl_tcp_if_exclude"})
    if (std::getenv(name)) return true;
  const char* home = std::getenv("HOME");
  return file_mentions("/etc/openmpi/openmpi-mca-params.conf", "btl_tcp_if_") ||
         (home && file_mentions(std::string(home) + "/.openmpi/mca-params.conf", "btl_tcp_if_"));
}

}  // namespace

std::vector<std::string> inner_interfaces(std::span<const std::string> names) {
  constexpr std::array<std::string_view, 8> kPrefixes{"docker", "br-",    "virbr", "lxcbr",
                                                      "lxdbr",  "podman", "cni",   "veth"};
  std::vector<std::string> inner;
  for (const std::string& name : names)
    if (std::any_of(kPrefixes.begin(), kPrefixes.end(),
                    [&](std::string_view prefix) { return name.starts_with(prefix); }))
      inner.push_back(name);
  return inner;
}

void prepare_mpi_settings() {
  ::setenv("OMPI_MCA_btl_tcp_eager_limit", kEagerBytes, 0);
  ::setenv("OMPI_MCA_btl_tcp_rndv_eager_limit", kEagerBytes, 0);
  // With more ranks than cores Open MPI would yield the core in every look for messages (message_sleep.h).
  ::setenv("OMPI_MCA_mpi_yield_when_idle", "0", 0);
  const std::vector<std::string> names = interface_names(), inner = inner_interfaces(names);
  if (inner.empty() || user_chose_interfaces()) return;
  std::string excluded = "127.0.0.1/8,sppp";  // Open MPI's default
  for (const std::string& name : inner) excluded += "," + name;
  ::setenv("OMPI_MCA_btl_tcp_if_exclude", excluded.c_str(), 0);
}

}  // namespace dstrain
