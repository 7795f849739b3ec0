#include "runtime/storage/checkpoint/lineage.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "runtime/core/error.h"
#include "runtime/core/files/atomic_file.h"
#include "runtime/core/files/input_file.h"
#include "runtime/storage/checkpoint/lineage_json.h"

namespace dstrain {
namespace {

constexpr int64_t kMaxLineageBytes = int64_t{16} << 20;

std::string lineage_file(const std::string& root) {
  return root + "/lineage.json";
}

}  // namespace

bool Lineage::contains(const std::string& start, int64_t step) const {
  return start == id || std::ranges::any_of(ancestors, [&](const Ancestor& a) {
           return a.id == start && step <= a.step;
         });
}

Lineage new_lineage(const std::string& job) {
  std::random_device random;
  return {.id = fmt::format("{:08x}", random()), .ancestors = {}, .job = job};
}

Lineage branch_of(const Lineage& parent, int64_t step, const std::string& job) {
  Lineage branch = new_lineage(job);
  branch.ancestors = parent.ancestors;
  for (Ancestor& a : branch.ancestors) a.step = std::min(a.step, step);
  branch.ancestors.push_back({parent.id, step});
  return branch;
}

nlohmann::json to_json(const Lineage& lineage) {
  nlohmann::json ancestors = nlohmann::json::array();
  for (const Ancestor& a : lineage.ancestors) ancestors.push_back({{"id", a.id}, {"step", a.step}});
  nlohmann::json object = {{"id", lineage.id}, {"ancestors", std::move(ancestors)}};
  if (!lineage.job.empty()) object["job"] = lineage.job;
  return object;
}

Lineage lineage_from(const nlohmann::json& object) {
  Lineage lineage{.id = object.at("id").get<std::string>()};
  if (object.contains("job")) lineage.job = object.at("job").get<std::string>();
  for (const nlohmann::json& a : object.at("ancestors"))
    lineage.ancestors.push_back({a.at("id").get<std::string>(), a.at("step").get<int64_t>()});
  return lineage;
}

std::optional<Lineage> read_lineage(const std::string& root) try {
  return lineage_from(
      nlohmann::json::parse(read_input_file(lineage_file(root), "the lineage", kMaxLineageBytes)));
} catch (const UserError&) {  // no file
  return std::nullopt;
} catch (const nlohmann::json::exception&) {  // malformed
  return std::nullopt;
}

void write_lineage(const std::string& root, const Lineage& lineage) {
  if (read_lineage(root) == lineage) return;
  write_file(lineage_file(root), to_json(lineage).dump() + "\n");
}

}  // namespace dstrain
