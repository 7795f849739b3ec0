#include <algorithm>

#include "launcher/commands/commands.h"
#include "launcher/input/defaults.h"
#include "launcher/input/name_patterns.h"
#include "launcher/process/failure.h"
#include "runtime/config/check_report.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

// Judges patterns for names of the model, which the configuration alone does not know.
void judge_name_patterns(LoadedConfig& loaded) {
  if (has_errors(loaded.verdicts)) return;
  const std::optional<WrongPattern> wrong = find_wrong_pattern(loaded.job);
  if (!wrong) return;
  const auto verdict = std::ranges::find(loaded.verdicts, wrong->key, &Verdict::key);
  verdict->state = State::error;
  verdict->message = wrong->message;
}

}  // namespace

int run_check(const CheckArguments& arguments) {
  LoadedConfig loaded = check_config(arguments.request);
  judge_name_patterns(loaded);
  const bool wrong = has_errors(loaded.verdicts);
  const std::string model = wrong ? "" : model_line(arguments.request.path, loaded);
  print_result(arguments.json ? check_json(loaded.verdicts)
                              : (model.empty() ? "" : model + "\n") +
                                    check_text(loaded.verdicts, loaded.way_on,
                                               wrong ? "" : missing_data(loaded.job)));
  return wrong ? 1 : 0;
}

}  // namespace dstrain
