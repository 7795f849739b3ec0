// dstrain host_agent: the agent on a host of a run. The launching process starts it and speaks with it over its
// standard input and output.
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "launcher/commands/commands.h"
#include "launcher/hosts/agent/agent.h"
#include "launcher/hosts/start/run_questions.h"
#include "runtime/core/devices/cuda_device.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

nlohmann::json read_files(const AgentInput& input, const ModelRegistry& models) {
  if (::chdir(input.directory.c_str()) != 0)
    fail_user("cannot enter {}: {}", input.directory, std::strerror(errno));
  const auto [config, read] =
      read_host_input(input.words, input.ranks, models, RunsWhere::here, CacheUse::read);
  const int gpus = is_gpu(read.job().device) ? cuda_device_count() : 0;
  return {
      {"files", input_files(read, config)}, {"device", name_of(read.job().device)}, {"gpus", gpus}};
}

}  // namespace

int run_host_agent(const HostAgentArguments& arguments, const ModelRegistry& models) {
  return run_agent({[&models](const AgentInput& input) { return read_files(input, models); }},
                   arguments.here);
}

}  // namespace dstrain
