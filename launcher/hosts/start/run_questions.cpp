#include "launcher/hosts/start/run_questions.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "launcher/cli/parse_arguments.h"
#include "launcher/connection/network.h"
#include "launcher/hosts/start/agents.h"
#include "launcher/implementations.h"
#include "launcher/input/compared_files.h"
#include "launcher/process/program_path.h"
#include "runtime/config/read/resolved_source.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/plan/settings/fit.h"
#include "runtime/storage/file_checksum.h"

namespace dstrain {

namespace fs = std::filesystem;

using nlohmann::json;

namespace {

// Throws UserError if the words of a command line cannot be told to other hosts.
void require_utf8_words(const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (first_invalid_utf8(words[i]) == std::string::npos) continue;
    const bool whole = i == 0 || words[i].starts_with("--");  // "--export=NAME=VALUE"
    fail_user("{}: expected UTF-8, because every host gets the command line, got '{}'",
              whole ? words[i].substr(0, words[i].find('=')) : words[i - 1], printable(words[i]));
  }
}

}  // namespace

int most_ranks(const std::vector<HostRanks>& hosts) {
  int most = 0;
  for (const HostRanks& host : hosts) most = std::max(most, host.ranks());
  return most;
}

std::string master_address(const LaunchOptions& options) {
  return options.master_addr.empty() ? "" : address_of("--master_addr", options.master_addr);
}

json input_files(const RunInput& input, const std::string& config) {
  json files = json::array();
  for (const ComparedFile& file : compared_files(input, config))
    files.push_back({{"path", file.path}, {"hash", file.checksum}});
  return files;
}

HostInput read_host_input(const std::vector<std::string>& words, int64_t ranks,
                          const ModelRegistry& models, RunsWhere where, CacheUse cache) {
  const Arguments arguments = parse_arguments(words, models);
  const auto* train = std::get_if<TrainArguments>(&arguments);
  check(train != nullptr, "the command line of a start does not train");
  ConfigRequest request = train->request;
  complete_request(request);
  request.ranks = ranks;
  return {request.path, read_input(request, where, cache)};
}

PreflightQuestions questions_about(const RunInput& input, const std::string& config,
                                   const std::vector<std::string>& words) {
  require_rereadable(config, "every host reads it");
  require_utf8_words(words);
  PreflightQuestions questions;
  questions.program_checksum = file_checksum("/proc/self/exe", "the program");
  questions.words = words;
  questions.device = name_of(input.job().device);
  questions.world = input.job().ranks;
  questions.files = input_files(input, config);
  questions.output =
      (fs::path(working_directory()) / input.job().output).lexically_normal().string();
  questions.silence_ns = input.job().silence_s * 1'000'000'000;
  questions.check_memory = [job = input.job(), needed = std::map<int, HostMemoryNeed>()](
                               int ranks, int64_t bytes, const std::string& source) mutable {
    const auto [known, is_new] = needed.try_emplace(ranks);
    if (is_new) {
      const Job here = job_of_host(job, ranks);
      const PlanInputs inputs = plan_inputs(here, ranks);
      known->second =
          memory_need(here, planned_memory(here, inputs), inputs, ranks, RankProcesses::programs);
    }
    check_memory(known->second, bytes, source, ways_to_need_less(job));
  };
  return questions;
}

void add_option_questions(PreflightQuestions& questions, const LaunchOptions& options,
                          const std::vector<HostRanks>& hosts) {
  // Makes the plans before agents run, which expect to hear from this process: a large plan takes long.
  if (questions.check_memory)
    for (const HostRanks& host : hosts)
      questions.check_memory(host.ranks(), std::numeric_limits<int64_t>::max(), "");
  if (options.no_ssh_check) questions.contact_seconds = kLongContact;
  questions.master_address = master_address(options);
  if (options.master_port) questions.ports = ports_from(*options.master_port, most_ranks(hosts));
}

}  // namespace dstrain
