#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "launcher/commands/commands.h"
#include "launcher/input/defaults.h"
#include "launcher/input/name_patterns.h"
#include "launcher/process/failure.h"
#include "runtime/config/report/check_report.h"
#include "runtime/config/text.h"
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

// Returns the terms on which a job without errors trains: the number of ranks, if its sizes leave one alone and the command
// names none, and the data that it lacks.
std::string terms_of(const CheckArguments& arguments, const Job& job) {
  std::vector<std::string> terms;
  const BatchConfig& batch = job.batch;
  if (!arguments.request.ranks && batch.train_batch > 0 && batch.micro_batch > 0 &&
      batch.accumulation > 0)
    terms.push_back("on " + counted(batch.train_batch / batch.micro_batch / batch.accumulation *
                                        job.pipeline.stages * job.sequence_ranks * job.tensor_ranks,
                                    "rank"));
  if (const std::string data = missing_data(job); !data.empty()) terms.push_back("once " + data);
  return fmt::format("{}", fmt::join(terms, " "));
}

}  // namespace

int run_check(const CheckArguments& arguments) {
  LoadedConfig loaded = check_config(arguments.request);
  judge_name_patterns(loaded);
  const bool wrong = has_errors(loaded.verdicts);
  const std::string first =
      wrong ? loaded.without_effect : model_line(arguments.request.path, loaded);
  print_result(arguments.json
                   ? check_json(loaded.verdicts)
                   : (first.empty() ? "" : first + "\n") +
                         check_text(loaded.verdicts,
                                    arguments.all ? CheckLines::all : CheckLines::notable,
                                    loaded.way_on, wrong ? "" : terms_of(arguments, loaded.job)));
  return wrong ? 1 : 0;
}

}  // namespace dstrain
