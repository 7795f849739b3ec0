// The options of a ConfigRequest, which several commands have. `request` must outlive `line`.
#pragma once

#include <string>

#include "launcher/cli/command_line.h"
#include "runtime/config/load.h"

namespace dstrain {

// The number of ranks, or of those on each host.
inline constexpr const char* kRanksOption = "--num_gpus,--num_accelerators";

// Adds the options of every command that reads a configuration. Goes before the functions below.
void add_config(CommandLine& line, ConfigRequest& request, const ModelRegistry& models);

// Adds the options that name the model and the data.
void add_sources(CommandLine& line, ConfigRequest& request);

// Adds the options of train, plan, verify and estimate that describe the run.
void add_run(CommandLine& line, ConfigRequest& request);

// Adds the options of train and doctor that name files.
void add_files(CommandLine& line, ConfigRequest& request);

// Throws UserError if both --steps and --epochs are given.
void refuse_two_lengths(const ConfigRequest& request);

// Throws UserError if both --resume and --init_weights are given.
void refuse_two_beginnings(const ConfigRequest& request);

// Drops --epochs where a command's result does not depend on the length of the run, so that no samples are counted.
void leave_out_epochs(ConfigRequest& request);

}  // namespace dstrain
