// The commands of dstrain, one file each. Each returns the exit status and throws what it cannot do;
// run() turns both into what the shell sees.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/arguments.h"

namespace dstrain {

// `words`: the command line, for the ranks that are started with the same.
int run_train(const TrainArguments& arguments, const std::vector<std::string>& words);
int run_plan(const PlanArguments& arguments);
int run_check(const CheckArguments& arguments);
int run_estimate(const EstimateArguments& arguments);
int run_generate(const GenerateArguments& arguments);
int run_hosts(const HostsArguments& arguments);
int run_doctor(const DoctorArguments& arguments);
int run_host_agent(const HostAgentArguments& arguments);

// The whole program behind main(): runs the command that `words` ask for and returns the exit status
// of the contract. Throws nothing; errors are lines on standard error.
int run(const std::vector<std::string>& words) noexcept;

}  // namespace dstrain
