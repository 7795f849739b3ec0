#include "launcher/placement/resources.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <numeric>
#include <set>
#include <string_view>
#include <system_error>
#include <unordered_map>

#include "launcher/cli/option_readers.h"
#include "launcher/placement/ranges_text.h"
#include "runtime/config/text.h"
#include "runtime/core/cpu.h"
#include "runtime/core/devices/cuda_device.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr const char* kLocalHost = "localhost";
constexpr const char* kGrammar = "NODE[:slot,slot][@NODE...]";

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// "slots 0 to 3 (hosts:2)".
std::string slots_text(const Hostfile& pool, const HostEntry& host) {
  const std::string place = host.line == 0 ? "" : fmt::format(" ({}:{})", pool.path, host.line);
  if (host.slots == 0) return "no slots" + place;
  if (host.slots == 1) return "slot 0 only" + place;
  return fmt::format("slots 0 to {}{}", host.slots - 1, place);
}

// The slots of one host that --include or --exclude names.
struct NamedSlots {
  bool all = false;
  std::set<int> some;

  bool has(int slot) const { return all || some.contains(slot); }
};

// Chooses the slots of each host.
class Choice {
 public:
  Choice(const Hostfile& pool, const HostOptions& options)
      : pool_(pool),
        options_(options),
        include_(!options.include.empty()),
        named_(include_ || !options.exclude.empty()),
        option_(include_ ? "--include" : "--exclude") {
    if (named_) read(include_ ? options.include : options.exclude);
  }

  std::vector<int> slots_of(size_t place) const {
    const HostEntry& host = pool_.hosts[place];
    if (!named_) return first_numbers(static_cast<int>(options_.slots_each.value_or(host.slots)));
    const auto found = slots_of_.find(place);
    std::vector<int> slots;
    for (int slot = 0; slot < host.slots; ++slot)
      if ((found != slots_of_.end() && found->second.has(slot)) == include_) slots.push_back(slot);
    return slots;
  }

 private:
  void read(const std::string& text) {
    for (size_t i = 0; i < pool_.hosts.size(); ++i) place_of_.emplace(pool_.hosts[i].name, i);
    for (const std::string_view node : split(text, '@')) {
      const size_t colon = std::min(node.find(':'), node.size());
      const size_t place = place_of(std::string(node.substr(0, colon)), text);
      NamedSlots& slots = slots_of_[place];
      if (colon == node.size()) {
        slots.all = true;
        continue;
      }
      for (const std::string_view word : split(node.substr(colon + 1), ','))
        slots.some.insert(slot_of(pool_.hosts[place], word, text));
    }
  }

  size_t place_of(const std::string& name, const std::string& text) const {
    if (name.empty()) bad_text(text);
    const auto found = place_of_.find(name);
    if (found != place_of_.end()) return found->second;
    std::vector<std::string> names;
    if (host_name_error(name).empty())
      for (const HostEntry& host : pool_.hosts) names.push_back(host.name);
    const std::string near = nearest(name, names);
    fail_user("{}: there is no host '{}' in {}{}", option_, printable(name), pool_.path,
              near.empty() ? "" : fmt::format("; did you mean '{}'?", near));
  }

  int slot_of(const HostEntry& host, std::string_view word, const std::string& text) const {
    int slot = 0;
    const char* const end = word.data() + word.size();
    const auto [stop, status] = std::from_chars(word.data(), end, slot);
    if (status == std::errc::invalid_argument || stop != end || slot < 0) bad_text(text);
    if (status != std::errc() || slot >= host.slots)
      fail_user("{}: host '{}' has {}, got slot {}", option_, host.name, slots_text(pool_, host),
                printable(word));
    return slot;
  }

  [[noreturn]] void bad_text(const std::string& text) const {
    fail_user("{}: expected {} (node1:0,2@node2), got '{}'", option_, kGrammar, printable(text));
  }

  const Hostfile& pool_;
  const HostOptions& options_;
  bool include_, named_;
  const char* option_;
  std::unordered_map<std::string, size_t> place_of_;
  std::unordered_map<size_t, NamedSlots> slots_of_;
};

// Returns how many hosts of the pool the run may use. Throws UserError if the pool has fewer, or one of them has fewer
// slots than --num_gpus asks for.
size_t hosts_taken(const Hostfile& pool, const HostOptions& options) {
  const size_t nodes = options.nodes ? static_cast<size_t>(*options.nodes) : pool.hosts.size();
  if (nodes > pool.hosts.size())
    fail_user("--num_nodes {}: {} names {}", nodes, pool.path,
              counted(static_cast<int64_t>(pool.hosts.size()), "host"));
  for (size_t i = 0; i < nodes; ++i)
    if (options.slots_each.value_or(0) > pool.hosts[i].slots)
      fail_user("--num_gpus {}: host '{}' has {}; --include can take another number of each host",
                *options.slots_each, pool.hosts[i].name, slots_text(pool, pool.hosts[i]));
  return nodes;
}

void check_filters(const HostOptions& options) {
  const bool named = !options.include.empty() || !options.exclude.empty();
  if (!options.include.empty() && !options.exclude.empty())
    fail_user("--include and --exclude are given: give one of them");
  if (named && (options.nodes || options.slots_each))
    fail_user(
        "{} and {} are given: give one of them; --include and --exclude name slots themselves",
        options.nodes ? "--num_nodes" : "--num_gpus",
        options.include.empty() ? "--exclude" : "--include");
}

Hostfile this_machine(const HostOptions& options, const LocalSlots& local) {
  if (options.nodes.value_or(1) > 1)
    fail_user("--num_nodes {}: no hostfile names the other hosts: add --hostfile FILE",
              *options.nodes);
  const bool named = !options.include.empty() || !options.exclude.empty();
  // Ranks may share a machine's cores, so --num_gpus may exceed their number.
  const int slots =
      named ? local.all : static_cast<int>(options.slots_each.value_or(local.by_default));
  return {"this machine, called localhost (no hostfile is given)", {{kLocalHost, slots, 0}}, {}};
}

}  // namespace

std::vector<int> HostRanks::all_ranks() const {
  std::vector<int> all(slots.size());
  std::iota(all.begin(), all.end(), first_rank);
  return all;
}

LocalSlots local_slots() {
  return {.all = std::max(usable_core_count(), cuda_device_count()), .by_default = 1};
}

int Placement::ranks() const {
  return hosts.empty() ? 0 : hosts.back().first_rank + hosts.back().ranks();
}

std::vector<HostRanks> choose_hosts(const Hostfile& pool, const HostOptions& options) {
  check_filters(options);
  const Choice choice(pool, options);
  const size_t nodes = hosts_taken(pool, options);
  std::vector<HostRanks> hosts;
  int64_t rank = 0;
  for (size_t i = 0; i < nodes; ++i) {
    std::vector<int> slots = choice.slots_of(i);
    if (slots.empty()) continue;
    hosts.push_back({pool.hosts[i].name, std::move(slots), static_cast<int>(rank)});
    rank += hosts.back().ranks();
    if (rank > kMostRanks)
      fail_user("{}: a run has at most {} ranks, and more slots are chosen", pool.path, kMostRanks);
  }
  if (hosts.empty())
    fail_user("{}", !options.exclude.empty()
                        ? fmt::format("--exclude leaves no slot of {}", pool.path)
                    : !options.include.empty()
                        ? fmt::format("--include takes no slot of {}", pool.path)
                        : fmt::format("{}: no host that the run takes has a slot", pool.path));
  return hosts;
}

std::vector<std::string> usual_hostfiles() {
  return {"/job/hostfile", "/etc/mpi/hostfile"};
}

Placement place_ranks(const HostOptions& options, const LocalSlots& local,
                      const std::vector<std::string>& usual) {
  check_filters(options);
  std::error_code none;
  std::string path = options.hostfile;
  for (size_t i = 0; path.empty() && i < usual.size(); ++i)
    if (std::filesystem::exists(usual[i], none)) path = usual[i];
  const Hostfile pool = path.empty() ? this_machine(options, local) : read_hostfile(path);
  return {path, choose_hosts(pool, options), pool.warnings};
}

}  // namespace dstrain
