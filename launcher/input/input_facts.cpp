#include "launcher/input/input_facts.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "launcher/input/initial_files.h"
#include "runtime/core/checksum.h"
#include "runtime/core/error.h"
#include "runtime/engine/resume/run_facts.h"
#include "runtime/storage/checkpoint/checkpoint_choice.h"
#include "runtime/storage/checkpoint/manifest.h"
#include "runtime/storage/file_checksum.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

// Returns for example "1000 bytes, checksum 60f5e2d9a4f8c1b3".
std::string contents_of(const std::string& path, std::string_view what) {
  const std::string checksum = file_checksum(path, what);
  return fmt::format("{} bytes, checksum {}", fs::file_size(path), checksum);
}

// Returns the value of the fact `name`, or "not given" if there is none.
std::string value_in(const InputFacts& facts, const std::string& name) {
  const auto found = std::ranges::find(facts, name, &InputFact::name);
  return found == facts.end() ? "not given" : found->value;
}

std::string label_of(const InputFact& fact) {
  return fact.file.empty()
             ? fact.name
             : fmt::format("{} ({})", fact.name, fs::path(fact.file).filename().string());
}

}  // namespace

InputFacts input_facts(const Job& job, const Dataset& dataset) {
  InputFacts facts{{"program", contents_of("/proc/self/exe", "the program")}};
  for (const RunFact& fact : run_facts(job, dataset)) {
    if (fact.name == "data")
      facts.push_back({fact.name,
                       fmt::format("{} bytes, {}", dataset.files(Split::train).bytes, fact.value),
                       job.data.paths.size() == 1 ? job.data.paths.front() : ""});
    else
      facts.push_back({fact.name, fact.value});
  }
  // Writing a trace is collective, and each rank decides by its own setting.
  facts.push_back({"dstrain.trace", job.trace.empty() ? "not written" : "written"});
  if (!job.resume.empty()) {
    const CheckpointInfo checkpoint = find_checkpoint(job.resume);
    facts.push_back({"checkpoint",
                     fmt::format("step {}, {}", checkpoint.label.step,
                                 contents_of((fs::path(checkpoint.dir) / kManifestName).string(),
                                             "the manifest")),
                     checkpoint.dir});
  }
  for (const InitialFile& file : initial_files(job))
    facts.push_back({file.name, contents_of(file.path, file.what), file.path});
  return facts;
}

uint64_t digest_of(const InputFacts& facts) {
  std::string all;
  for (const InputFact& fact : facts) {
    all.append(fact.name).push_back('\0');
    all.append(fact.value).push_back('\0');
  }
  return checksum_of(all.data(), static_cast<int64_t>(all.size()));
}

std::string facts_text(const InputFacts& facts) {
  nlohmann::json list = nlohmann::json::array();
  for (const InputFact& fact : facts) list.push_back({fact.name, fact.value, fact.file});
  // A path may be invalid UTF-8.
  return list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

InputFacts parse_facts(const std::string& text) {
  InputFacts facts;
  try {
    for (const auto& part : nlohmann::json::parse(text))
      facts.push_back({part.at(0).get<std::string>(), part.at(1).get<std::string>(),
                       part.at(2).get<std::string>()});
  } catch (const nlohmann::json::exception& error) {
    fail_run("the facts of another rank's run are damaged: {}", error.what());
  }
  return facts;
}

std::vector<std::string> differences(const InputFacts& here, const InputFacts& there) {
  std::vector<std::string> parts;
  const auto compare = [&](const InputFact& fact) {
    const std::string mine = value_in(here, fact.name), theirs = value_in(there, fact.name);
    if (mine != theirs)
      parts.push_back(fmt::format("{}: {} there, {} here", label_of(fact), theirs, mine));
  };
  for (const InputFact& fact : here) compare(fact);
  for (const InputFact& fact : there)
    if (std::ranges::find(here, fact.name, &InputFact::name) == here.end()) compare(fact);
  return parts;
}

}  // namespace dstrain
