// dstrain compare: a table of runs.
#include "launcher/commands/commands.h"
#include "launcher/process/failure.h"
#include "launcher/report/page/comparison.h"
#include "launcher/report/record/run_record.h"

namespace dstrain {

int run_compare(const CompareArguments& arguments) {
  const std::vector<report::RunRecord> runs =
      report::read_runs(arguments.runs, report::columns_for(arguments.runs.size()));
  print_result(arguments.json ? report::comparison_json(runs) : report::comparison_text(runs));
  return 0;
}

}  // namespace dstrain
