// The commands of dstrain, each in the source file of its name. Each returns the exit status, and throws the errors
// that run() reports. `models` are those that the program has.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/arguments.h"
#include "runtime/config/keys/table/model_registry.h"

namespace dstrain {

// `words`: the command line, which the ranks get too.
int run_train(const TrainArguments& arguments, const std::vector<std::string>& words);
int run_plan(const PlanArguments& arguments);
int run_init(const InitArguments& arguments, const ModelRegistry& models);
int run_verify(const VerifyArguments& arguments);
int run_check(const CheckArguments& arguments);
int run_estimate(const EstimateArguments& arguments);
int run_generate(const GenerateArguments& arguments, const ModelRegistry& models);
int run_chat(const ChatArguments& arguments, const ModelRegistry& models);
int run_eval(const EvalArguments& arguments, const ModelRegistry& models);
int run_teach(const TeachArguments& arguments, const ModelRegistry& models);
int run_export(const ExportArguments& arguments, const ModelRegistry& models);
int run_import(const ImportArguments& arguments);
int run_tokenize(const TokenizeArguments& arguments);
int run_report(const ReportArguments& arguments);
int run_compare(const CompareArguments& arguments);
int run_watch(const WatchArguments& arguments);
int run_models(const ModelsArguments& arguments, const ModelRegistry& models);
int run_hosts(const HostsArguments& arguments);
int run_doctor(const DoctorArguments& arguments);
int run_bench_io(const BenchIoArguments& arguments);
int run_host_agent(const HostAgentArguments& arguments, const ModelRegistry& models);

}  // namespace dstrain
