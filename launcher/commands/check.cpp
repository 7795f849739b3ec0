#include <algorithm>

#include "launcher/commands/commands.h"
#include "launcher/input/run_input.h"
#include "launcher/process/failure.h"
#include "runtime/config/check_report.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

// Checks the names of weights in the file, which needs the model.
void judge_exclusions(LoadedConfig& loaded) {
  if (has_errors(loaded.verdicts)) return;
  try {
    check_exclusions(loaded.job);
  } catch (const UserError& error) {
    const std::string key = "dstrain.weight_decay_exclude";
    const auto verdict = std::ranges::find(loaded.verdicts, key, &Verdict::key);
    verdict->state = State::error;
    verdict->message = std::string(error.what()).substr(key.size() + 2);
  }
}

}  // namespace

int run_check(const CheckArguments& arguments) {
  LoadedConfig loaded = check_config(arguments.request);
  judge_exclusions(loaded);
  print_result(arguments.json ? check_json(loaded.verdicts) : check_text(loaded.verdicts));
  return has_errors(loaded.verdicts) ? 1 : 0;
}

}  // namespace dstrain
